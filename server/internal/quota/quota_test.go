package quota_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// open returns a database in which a tenant has two agents, two environments, and one repository.
func open(t *testing.T) (store.Store, fleet.Tenant) {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: sqlitetest.Path(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tenant := fleet.Tenant{ID: fleet.NewTenantID(), Name: "shop", CreatedAt: now}
	other := fleet.Tenant{ID: fleet.NewTenantID(), Name: "other", CreatedAt: now}
	err = st.Update(t.Context(), func(tx store.Tx) error {
		ctx := t.Context()
		agent := func(of fleet.Tenant, name string) error {
			return tx.Agents().Create(ctx, fleet.Agent{ID: fleet.NewAgentID(), TenantID: of.ID, Name: name, Scope: fleet.ScopeCluster, SpecRevision: 1, CreatedAt: now})
		}
		env := func(name string) error {
			return tx.Environments().Create(ctx, fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: tenant.ID, Name: name, CreatedAt: now})
		}
		return errors.Join(tx.Tenants().Create(ctx, tenant), tx.Tenants().Create(ctx, other),
			agent(tenant, "a"), agent(tenant, "b"), agent(other, "c"), env("x"), env("y"),
			tx.Repositories().Create(ctx, fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: tenant.ID, URL: "https://git.example.com/a", SpecRevision: 1, CreatedAt: now}))
	})
	if err != nil {
		t.Fatal(err)
	}
	return st, tenant
}

func TestCheck(t *testing.T) {
	t.Parallel()
	st, tenant := open(t)
	tests := map[string]struct {
		quota  fleet.Quota
		what   quota.Kind
		adding int
		limit  int // of the error; 0 if there is none
	}{
		"no quota":                        {fleet.Quota{}, quota.Agents, 1000, 0},
		"room for one more":               {fleet.Quota{Agents: 3}, quota.Agents, 1, 0},
		"agents of others do not count":   {fleet.Quota{Agents: 2}, quota.Agents, 0, 0},
		"no room":                         {fleet.Quota{Agents: 2}, quota.Agents, 1, 2},
		"room for one, and two are added": {fleet.Quota{Agents: 3}, quota.Agents, 2, 3},
		"lowered below the number":        {fleet.Quota{Agents: 1}, quota.Agents, 0, 1},
		"environments":                    {fleet.Quota{Environments: 2}, quota.Environments, 1, 2},
		"repositories":                    {fleet.Quota{Repositories: 1}, quota.Repositories, 1, 1},
		"deployments":                     {fleet.Quota{Deployments: 1}, quota.Deployments, 2, 1},
		"targets":                         {fleet.Quota{Targets: 5}, quota.Targets, 6, 5},
		"tokens":                          {fleet.Quota{Tokens: 1}, quota.Tokens, 2, 1},
		"another quota does not apply":    {fleet.Quota{Agents: 1}, quota.Environments, 1, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := tenant
			of.Quota = tt.quota
			err := st.View(t.Context(), func(tx store.Tx) error { return quota.Check(t.Context(), tx, of, tt.what, tt.adding) })
			if tt.limit == 0 {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			var got *quota.ExceededError
			if want := (quota.ExceededError{Tenant: "shop", What: string(tt.what), Limit: tt.limit}); !errors.As(err, &got) || *got != want {
				t.Errorf("got %v, want %+v", err, want)
			}
		})
	}
}

func TestExceededErrorNamesTenantQuotaAndLimit(t *testing.T) {
	t.Parallel()
	text := (&quota.ExceededError{Tenant: "shop", What: "agents", Limit: 3}).Error()
	for _, want := range []string{`tenant "shop"`, "at most 3 agents", `quota "agents"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not contain %q", text, want)
		}
	}
}

func TestCheckReportsAFailedCount(t *testing.T) {
	t.Parallel()
	st, tenant := open(t)
	tenant.Quota.Agents = 1
	err := st.View(t.Context(), func(tx store.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return quota.Check(ctx, tx, tenant, quota.Agents, 1)
	})
	var exceeded *quota.ExceededError
	if err == nil || errors.As(err, &exceeded) || !strings.Contains(err.Error(), "agents") {
		t.Errorf("got %v, want the error of the count", err)
	}
}
