package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// tenantGuard is a [render.Builder] that refuses renders for several tenants in an incomplete sandbox: the
// input of one tenant could reach the data of another. The default tenant belongs to the operator of the
// server.
type tenantGuard struct {
	render.Builder
	status func() (status sandbox.Status, ok bool)
	store  store.Store
}

// Build implements [render.Builder].
func (g *tenantGuard) Build(ctx context.Context, job render.Job) (*render.Built, error) {
	// The first render determines an unknown status; the pool does so at the start.
	status, known := g.status()
	if problem := status.Problem(); known && problem != "" {
		refused, err := g.refuses(ctx, fleet.TenantID(job.Owner))
		if err != nil {
			return nil, fmt.Errorf("deciding whether to render %q: %w", job.Path, err)
		}
		if refused {
			return nil, &render.Error{Path: job.Path, Transient: true, Problem: "Kustomize and Helm are not rendered for this tenant, " +
				"because there are several tenants and the sandbox of renders is incomplete (" + problem + "): " + weakSandboxAdvice}
		}
	}
	return g.Builder.Build(ctx, job)
}

// weakSandboxAdvice is the remedy for an incomplete sandbox.
const weakSandboxAdvice = "ask the operator of the server to enable the missing mechanisms, or to accept the risk with --allow-weak-sandbox"

// refuses reports whether renders of a tenant are refused.
func (g *tenantGuard) refuses(ctx context.Context, tenant fleet.TenantID) (refused bool, err error) {
	err = g.store.View(ctx, func(tx store.Tx) error {
		some, err := tx.Tenants().List(ctx, store.Page{Limit: 2})
		if err != nil || len(some) < 2 {
			return err
		}
		own, err := tx.Tenants().ByName(ctx, fleet.DefaultTenant)
		if errors.Is(err, store.ErrNotFound) {
			refused = true
			return nil
		}
		refused = own.ID != tenant
		return err
	})
	return refused, err
}
