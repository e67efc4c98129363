package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/archive"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// fillAll puts something into every table that is backed up.
func fillAll(t *testing.T, s store.Store) *neighbours {
	t.Helper()
	n := newNeighbours(t, s)
	h, now := n.host, time.Now()
	named := fleet.Agent{ID: fleet.NewAgentID(), TenantID: h.tenant, Name: "named", Scope: fleet.ScopeNamespaced,
		Labels: map[string]string{"a": "b"}, Namespaces: []string{"x"}, CreatedAt: now}
	env := newEnvironment(h.tenant, "picky")
	env.Agents, env.MatchLabels = []string{"named"}, map[string]string{"a": "b"}
	d := n.newDeployment(h, "full")
	d.Labels, d.Source.Globs, d.Source.Variables = map[string]string{"c": "d"}, []string{"*"}, map[string]string{"e": "f"}
	target := fleet.Target{ID: fleet.NewTargetID(), TenantID: h.tenant, DeploymentID: d.ID, AgentID: named.ID,
		Desired: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: "sha256:x", Policy: fleet.Policy{Prune: true}}}
	run := fleet.SyncRun{ID: fleet.NewRunID(), TenantID: h.tenant, DeploymentID: d.ID, Kind: fleet.RunSync, Phase: fleet.RunRunning, CreatedAt: now}
	limited := n.grant
	limited.Limits = fleet.Limits{Namespaces: []string{"x"}, Kinds: []string{"ConfigMap"}}
	config := fleet.AgentConfig{TenantID: h.tenant, AgentID: named.ID, RepositoryID: d.RepositoryID, CreatedAt: now,
		State: fleet.ConfigInvalid, ReadAt: now, Errors: []fleet.ConfigFinding{{Field: "a", Line: 1, Message: "b"}}, Notices: []fleet.ConfigFinding{{Message: "c"}}}
	must := func(_ any, err error) error { return err }
	steps := func(ctx context.Context, tx store.Tx) []error {
		return []error{
			tx.Members().Put(ctx, fleet.Member{TenantID: h.tenant, Kind: fleet.MemberPerson, Subject: "anna", Role: fleet.RoleAdmin, CreatedAt: now}),
			tx.People().Bind(ctx, fleet.Person{Name: "anna", Issuer: "https://id.example.com", Subject: "1", CreatedAt: now, LoggedInAt: now}),
			tx.Agents().Create(ctx, named),
			tx.Agents().SetCapabilities(ctx, h.tenant, named.ID, fleet.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "v1"}}),
			tx.Agents().SetApplications(ctx, h.tenant, named.ID, fleet.ForeignApplications{Items: []fleet.ForeignApplication{{Name: "shop"}}, Total: 1}),
			tx.Connections().Put(ctx, fleet.Connection{SessionID: "s", AgentID: named.ID, TenantID: h.tenant, Replica: "r", Server: "x", ConnectedAt: now, LastSeenAt: now}),
			tx.Tokens().CreateAgentToken(ctx, fleet.AgentToken{ID: fleet.NewTokenID(), AgentID: named.ID, TenantID: h.tenant, Hash: make([]byte, 32), CreatedAt: now}),
			tx.Tokens().CreateAPIToken(ctx, fleet.APIToken{ID: fleet.NewTokenID(), Subject: "anna", Groups: []string{"g"}, Hash: make([]byte, 32), CreatedAt: now}),
			tx.Environments().Create(ctx, env),
			tx.Grants().Update(ctx, limited),
			tx.Credentials().Create(ctx, fleet.Credential{ID: fleet.NewCredentialID(), TenantID: h.tenant, Name: "c", Kind: fleet.CredentialHTTPS,
				Sealed: fleet.Sealed{KeyID: "k", Key: []byte{0, 255}, Data: []byte("x")}, CreatedAt: now, UpdatedAt: now}),
			tx.Bundles().Put(ctx, fleet.Bundle{TenantID: h.tenant, Digest: "sha256:x", Content: []byte{0, 1, 254}, CreatedAt: now}),
			tx.Deployments().Create(ctx, d),
			tx.Deployments().SetRendered(ctx, h.tenant, d.ID, fleet.Rendered{Commit: "abc", Digest: "sha256:x", At: now}),
			tx.Deployments().PutVariant(ctx, h.tenant, d.ID, fleet.Variant{Name: "v", Rendered: fleet.Rendered{Digest: "sha256:x", At: now}}),
			must(tx.Revisions().Append(ctx, h.tenant, d.ID, fleet.Revision{Commit: "abc", RenderedAt: now, Bundles: map[string]string{"": "sha256:x"}}, 10)),
			tx.Targets().Create(ctx, target),
			must(tx.Targets().SetObserved(ctx, h.tenant, []store.AgentReport{newsOfObjects(target, 3)})),
			must(tx.Runs().Create(ctx, run)),
			tx.Runs().SetTargets(ctx, h.tenant, run.ID, []fleet.RunTarget{{TargetID: target.ID, Version: fleet.Version{Epoch: 1}}}),
			tx.Operations().Create(ctx, fleet.Operation{ID: fleet.NewOperationID(), TenantID: h.tenant, Action: "delete", State: fleet.OperationWaiting, CreatedAt: now, UpdatedAt: now}),
			tx.Audit().Append(ctx, fleet.AuditEvent{At: now, Actor: "anna", Action: "suspend"}),
			tx.Events().Append(ctx, event(h.tenant, "größe \U0001F6A2")),
			tx.AgentConfigs().Put(ctx, config),
			tx.AgentConfigs().SetRead(ctx, config),
			tx.Declarations().Put(ctx, fleet.Declaration{TenantID: h.tenant, DeploymentID: target.DeploymentID, AgentName: "a", Name: "b", Prune: true}),
			tx.Owners().Put(ctx, fleet.Owned{TenantID: h.tenant, Kind: fleet.OwnedDeployment, ID: string(target.DeploymentID), Owner: fleet.Owner{Kind: "GitOpsDeployment", Namespace: "team", Name: "b", UID: "uid-1", Generation: 2}}),
			tx.Repositories().SetEvaluated(ctx, h.tenant, d.RepositoryID, []store.EvaluatedRef{{Revision: "main", Commit: "abc", Except: []fleet.DeploymentID{d.ID}}}, []string{"main"}),
			tx.PendingSpecs().Put(ctx, fleet.PendingSpec{TenantID: h.tenant, DeploymentID: d.ID, RepositoryID: d.RepositoryID, Source: d.Source, Labels: d.Labels,
				EnvironmentTenant: d.EnvironmentTenant, EnvironmentID: d.EnvironmentID, By: "anna", EditedAt: now, Reason: fleet.ReasonSourceNotRead}),
			tx.GitLabProjects().Put(ctx, fleet.GitLabProject{TenantID: h.tenant, Project: "1", URL: "u"}),
			tx.EngineUpgrades().Create(ctx, fleet.EngineUpgrade{ID: fleet.NewEngineUpgradeID(), TenantID: h.tenant, Name: "u", Timeout: time.Second, Phase: fleet.EngineUpgradeRunning,
				CreatedAt: now, Instances: []fleet.EngineUpgradeInstance{{Agent: "a", Phase: fleet.EngineInstancePending, Deadline: now}}}),
			tx.AccessRules().Create(ctx, fleet.AccessRule{ID: fleet.NewAccessRuleID(), TenantID: h.tenant, Name: "r", CreatedAt: now, Agents: []fleet.AccessAgent{{ID: h.agent.ID}},
				Subjects: []fleet.AccessSubject{{Kind: fleet.AccessToken, Name: "ci"}}, Environments: []fleet.AccessEnvironment{{ID: h.env.ID}}}),
			tx.Settings().SetEpoch(ctx, 7),
		}
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return errors.Join(steps(ctx, tx)...) })
	return n
}

// archived is a database that can be backed up and restored into.
type archived struct {
	name    string
	fill    func(t *testing.T)
	backup  func(t *testing.T) []byte
	restore func(t *testing.T, content []byte) error
}

func inSQLite(t *testing.T) archived {
	t.Helper()
	cfg := sqlite.Config{Path: filepath.Join(t.TempDir(), "kedge.db")}
	return archived{"sqlite", func(t *testing.T) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		fillAll(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T) []byte {
		t.Helper()
		var out bytes.Buffer
		if err := sqlite.Backup(t.Context(), cfg, "v1", &out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}, func(t *testing.T, content []byte) error {
		t.Helper()
		return sqlite.Restore(t.Context(), cfg, bytes.NewReader(content))
	}}
}

func inPostgres(t *testing.T) archived {
	t.Helper()
	d := pg.Database(t)
	return archived{"postgres", func(t *testing.T) { t.Helper(); fillAll(t, pgtest.Open(t, d)) }, func(t *testing.T) []byte {
		t.Helper()
		return backup(t, d)
	}, func(t *testing.T, content []byte) error {
		t.Helper()
		return postgres.Restore(t.Context(), postgres.MigrateConfig{URL: d.Owner}, bytes.NewReader(content))
	}}
}

func backup(t *testing.T, d pgtest.Database) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := postgres.Backup(t.Context(), postgres.Config{URL: d.URL}, "v1", &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// contents returns the rows of an archive by table, as text, in an order that does not depend on the database.
// The epoch is separate, because a restore raises it.
func contents(t *testing.T, content []byte) (tables map[string][]string, epoch int64) {
	t.Helper()
	r, err := archive.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tables = map[string][]string{}
	for {
		table, ok, err := r.NextTable()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return tables, epoch
		}
		rows := []string{}
		for {
			row, ok, err := r.NextRow()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			cells := map[string]string{}
			for i, c := range table.Columns {
				if table.Name == "settings" && c.Name == "epoch" {
					epoch = row[i].(int64)
					continue
				}
				cells[c.Name] = fmt.Sprintf("%v", archive.Convert(row[i], archive.Int))
			}
			rows = append(rows, fmt.Sprint(cells))
		}
		slices.Sort(rows)
		tables[table.Name] = rows
	}
}

func TestABackupOfEitherDatabaseGoesIntoEither(t *testing.T) {
	t.Parallel()
	kinds := []func(*testing.T) archived{inSQLite, inPostgres}
	for _, source := range kinds {
		for _, destination := range kinds {
			from, to := source(t), destination(t)
			t.Run(from.name+" into "+to.name, func(t *testing.T) {
				t.Parallel()
				from.fill(t)
				content := from.backup(t)
				if err := to.restore(t, content); err != nil {
					t.Fatal(err)
				}
				want, before := contents(t, content)
				got, epoch := contents(t, to.backup(t))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the restored data differs (-want +got):\n%s", diff)
				}
				if before != 7 || epoch <= before {
					t.Errorf("epochs: got %d before and %d after, want 7 and a higher one", before, epoch)
				}
				for _, name := range slices.Sorted(maps.Keys(want)) {
					if len(want[name]) == 0 {
						t.Errorf("table %s is empty, so the test does not cover it", name)
					}
				}
				if err := to.restore(t, content); !errors.Is(err, archive.ErrNotEmpty) {
					t.Errorf("restoring into a database with data: got error %v, want %v", err, archive.ErrNotEmpty)
				}
			})
		}
	}
}

func TestWhatIsRestoredGoesOn(t *testing.T) {
	t.Parallel()
	first, second := pg.Database(t), pg.Database(t)
	s := pgtest.Open(t, first)
	n := fillAll(t, s)
	last := lastSeq(t, s)
	content := backup(t, first)
	cfg := postgres.MigrateConfig{URL: second.Owner}
	for _, cut := range []int{len(content) / 2, len(content) - 1} {
		if err := postgres.Restore(t.Context(), cfg, bytes.NewReader(content[:cut])); err == nil {
			t.Fatalf("%d of %d bytes were accepted as a backup", cut, len(content))
		}
	}
	if err := postgres.Restore(t.Context(), cfg, bytes.NewReader(content)); err != nil {
		t.Fatalf("restoring after the incomplete backup was rolled back: %v", err)
	}
	restored := pgtest.Open(t, second) // refuses a table without forced row-level security
	update(t, restored, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Environments().Create(ctx, newEnvironment(n.host.tenant, "new")), tx.Events().Append(ctx, event(n.host.tenant, "new")))
	})
	if got := lastSeq(t, restored); got <= last+1 {
		t.Errorf("a number of the outbox after the restore: got %d, want a new one, above %d", got, last)
	}
	err := postgres.Backup(t.Context(), postgres.Config{URL: second.Owner}, "v1", &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "owns table") {
		t.Errorf("a backup by the owner, which sees no rows: got error %v, want an error", err)
	}
}
