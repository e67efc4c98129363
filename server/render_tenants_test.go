package server

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// built is a builder that renders nothing.
type built struct{}

func (built) Build(context.Context, render.Job) (*render.Built, error) { return &render.Built{}, nil }

// covers: T11
func TestAWeakSandboxRendersForOneTenantAlone(t *testing.T) {
	t.Parallel()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "kedge.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	own, other := fleet.NewTenantID(), fleet.NewTenantID()
	create := func(id fleet.TenantID, name string) {
		t.Helper()
		err := st.Update(t.Context(), func(tx store.Tx) error {
			return tx.Tenants().Create(t.Context(), fleet.Tenant{ID: id, Name: name, CreatedAt: time.Unix(1_700_000_000, 0)})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	weak := sandbox.Status{Active: []sandbox.Mechanism{sandbox.Limits}, Missing: []sandbox.Missing{{Mechanism: sandbox.Seccomp, Reason: "for a test"}}}
	build := func(status sandbox.Status, owner fleet.TenantID) error {
		g := &tenantGuard{Builder: built{}, store: st, status: func() (sandbox.Status, bool) { return status, true }}
		_, err := g.Build(t.Context(), render.Job{Owner: string(owner), Path: "app"})
		return err
	}
	refused := func(err error) bool {
		var mistake *render.Error
		return errors.As(err, &mistake) && mistake.Transient && strings.Contains(mistake.Problem, "--allow-weak-sandbox") &&
			strings.Contains(mistake.Problem, "seccomp")
	}
	create(own, fleet.DefaultTenant)
	if err := build(weak, own); err != nil {
		t.Errorf("the only tenant: %v", err)
	}
	create(other, "acme")
	if err := build(weak, own); err != nil {
		t.Errorf("the default tenant with another tenant: %v", err)
	}
	if err := build(weak, other); !refused(err) {
		t.Errorf("another tenant: got error %v", err)
	}
	if err := build(sandbox.Status{Active: sandbox.All()}, other); err != nil {
		t.Errorf("in a complete sandbox: %v", err)
	}
	if _, ok := (&renderer{}).builder(st).(*tenantGuard); ok {
		t.Error("there is nothing to guard")
	}
}
