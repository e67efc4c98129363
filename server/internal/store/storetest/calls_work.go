package storetest

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// workCalls are the calls about deployments, targets, bundles, and runs.
var workCalls = []call{
	{"Deployments.Create", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		d := newDeployment(w, "new")
		d.TenantID, d.EnvironmentTenant = tenant, tenant
		return nil, tx.Deployments().Create(ctx, d)
	}},
	{"Deployments.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().Get(ctx, tenant, w.deployment.ID)
	}},
	{"Deployments.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().ByName(ctx, tenant, w.deployment.Name)
	}},
	{"Deployments.LeavingByName", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().LeavingByName(ctx, tenant, w.deployment.Name)
	}},
	{"Deployments.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().List(ctx, tenant, store.DeploymentFilter{Agent: w.agent.ID})
	}},
	{"Deployments.OfRepository", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().OfRepository(ctx, tenant, w.repo.ID)
	}},
	{"Deployments.OfRepositoryByID", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().OfRepositoryByID(ctx, tenant, w.repo.ID, []fleet.DeploymentID{w.deployment.ID})
	}},
	{"Deployments.BriefsOfRepository", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().BriefsOfRepository(ctx, tenant, w.repo.ID)
	}},
	{"Deployments.OfEnvironmentAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().OfEnvironmentAllTenants(ctx, w.env.ID)
	}},
	{"Deployments.Update", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		d := w.deployment
		d.TenantID, d.Labels = tenant, nil
		return nil, tx.Deployments().Update(ctx, d)
	}},
	{"Deployments.SetRendered", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().SetRendered(ctx, tenant, w.deployment.ID, fleet.Rendered{Commit: "new", At: at(50)})
	}},
	{"Deployments.SetSourceError", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().SetSourceError(ctx, tenant, w.deployment.ID, fleet.ReasonRenderFailed, "broken", at(50))
	}},
	{"Deployments.SetDetected", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().SetDetected(ctx, tenant, w.deployment.ID, fleet.SourcePlain)
	}},
	{"Deployments.Variants", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().Variants(ctx, tenant, w.deployment.ID)
	}},
	{"Deployments.VariantsOf", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Deployments().VariantsOf(ctx, tenant, []fleet.DeploymentID{w.deployment.ID})
	}},
	{"Deployments.PutVariant", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().PutVariant(ctx, tenant, w.deployment.ID, fleet.Variant{Name: "v2"})
	}},
	{"Deployments.KeepVariants", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().KeepVariants(ctx, tenant, w.deployment.ID, nil)
	}},
	{"Deployments.Promote", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		d := w.deployment
		d.TenantID, d.Namespace = tenant, "mallory"
		return nil, tx.Deployments().Promote(ctx, d)
	}},
	{"PendingSpecs.Put", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		p := newPending(w, w.deployment)
		p.TenantID, p.Namespace = tenant, "mallory"
		return nil, tx.PendingSpecs().Put(ctx, p)
	}},
	{"PendingSpecs.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.PendingSpecs().Get(ctx, tenant, w.deployment.ID)
	}},
	{"PendingSpecs.Of", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.PendingSpecs().Of(ctx, tenant, []fleet.DeploymentID{w.deployment.ID})
	}},
	{"PendingSpecs.OfRepository", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.PendingSpecs().OfRepository(ctx, tenant, w.repo.ID)
	}},
	{"PendingSpecs.OfEnvironmentAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.PendingSpecs().OfEnvironmentAllTenants(ctx, w.env.ID)
	}},
	{"PendingSpecs.SetProblem", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		p := newPending(w, w.deployment)
		p.TenantID, p.SpecRevision, p.Problem = tenant, w.deployment.PendingSpecRevision, "mallory"
		return nil, tx.PendingSpecs().SetProblem(ctx, p)
	}},
	{"PendingSpecs.Remove", true, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return []int(nil), tx.PendingSpecs().Remove(ctx, tenant, w.deployment.ID)
	}},
	{"Deployments.MarkDeleted", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().MarkDeleted(ctx, tenant, w.deployment.ID, at(50))
	}},
	{"Deployments.Remove", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Deployments().Remove(ctx, tenant, w.deployment.ID)
	}},
	{"Deployments.Count", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Deployments().Count(ctx, tenant)
	}},
	{"Revisions.Append", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Revisions().Append(ctx, tenant, w.deployment.ID, fleet.Revision{Commit: "new", RenderedAt: at(50)}, 1)
	}},
	{"Revisions.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Revisions().List(ctx, tenant, w.deployment.ID, store.Page{})
	}},
	{"Revisions.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Revisions().Get(ctx, tenant, w.deployment.ID, w.revision.Seq)
	}},
	{"Targets.Create", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		x := newTarget(w, w.deployment, w.agent)
		x.TenantID = tenant
		return nil, tx.Targets().Create(ctx, x)
	}},
	{"Targets.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().Get(ctx, tenant, w.target.ID)
	}},
	{"Targets.OfDeployment", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().OfDeployment(ctx, tenant, w.deployment.ID)
	}},
	{"Targets.PageOfDeployment", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().PageOfDeployment(ctx, tenant, w.deployment.ID, store.TargetFilter{})
	}},
	{"Targets.OfAgentAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Targets().OfAgentAllTenants(ctx, w.agent.ID)
	}},
	{"Targets.GetAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Targets().GetAllTenants(ctx, w.agent.ID, []fleet.TargetID{w.target.ID})
	}},
	{"Targets.StandingsAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Targets().StandingsAllTenants(ctx, []fleet.TargetID{w.target.ID})
	}},
	{"Targets.LeftBehindAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Targets().LeftBehindAllTenants(ctx, w.agent)
	}},
	{"Targets.UnprovenAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Targets().UnprovenAllTenants(ctx, w.agent.ID)
	}},
	{"Targets.OfGrantAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Targets().OfGrantAllTenants(ctx, w.grant.ID)
	}},
	{"Targets.Detached", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Targets().Detached(ctx, tenant, store.DetachedFilter{})
	}},
	{"Targets.HandingOver", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Targets().HandingOver(ctx, tenant)
	}},
	{"Targets.Unsettled", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().Unsettled(ctx, tenant, []fleet.AgentID{w.agent.ID})
	}},
	{"Targets.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().List(ctx, tenant, []fleet.TargetID{w.target.ID})
	}},
	{"Targets.Tally", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().Tally(ctx, tenant, []fleet.DeploymentID{w.deployment.ID})
	}},
	{"Targets.OfDeployments", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().OfDeployments(ctx, tenant, []fleet.DeploymentID{w.deployment.ID})
	}},
	{"Targets.Variants", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().Variants(ctx, tenant, []fleet.TargetID{w.target.ID})
	}},
	{"Targets.CountByAgentAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Targets().CountByAgentAllTenants(ctx, []fleet.AgentID{w.agent.ID})
	}},
	{"Targets.Count", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Targets().Count(ctx, tenant)
	}},
	{"Targets.SetDesired", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Targets().SetDesired(ctx, tenant, w.target.ID, fleet.Desired{Version: fleet.Version{Generation: 99}})
	}},
	{"Targets.SetSourceRevision", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Targets().SetSourceRevision(ctx, tenant, w.target.ID, 99)
	}},
	{"Targets.SetPlace", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		x := w.target
		x.TenantID, x.DetachedAt = tenant, at(50)
		return nil, tx.Targets().SetPlace(ctx, x)
	}},
	{"Targets.SetObserved", true, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().SetObserved(ctx, tenant, []store.AgentReport{{Agent: w.agent.ID, Report: store.Report{
			Target: w.target.ID, Full: true, Observed: fleet.Observed{Version: fleet.Version{Epoch: 9}}}}})
	}},
	{"Targets.Objects", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().Objects(ctx, tenant, w.target.ID)
	}},
	{"Targets.Held", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().Held(ctx, tenant, w.deployment.ID, store.HeldObject{}, 10)
	}},
	{"Targets.CountHeld", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().CountHeld(ctx, tenant, []fleet.DeploymentID{w.deployment.ID})
	}},
	{"Targets.HeldByDeployment", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Targets().HeldByDeployment(ctx, tenant, 10)
	}},
	{"Targets.CountObjects", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Targets().CountObjects(ctx, tenant, w.deployment.ID)
	}},
	{"Targets.Remove", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Targets().Remove(ctx, tenant, w.target.ID)
	}},
	{"Bundles.Put", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Bundles().Put(ctx, newBundle(tenant, "new"))
	}},
	{"Bundles.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Bundles().Get(ctx, tenant, w.bundle.Digest)
	}},
	{"Bundles.DeleteUnused", true, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Bundles().DeleteUnused(ctx, tenant, at(1_000_000))
	}},
	{"Runs.Create", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		r := newRun(w.deployment)
		r.TenantID = tenant
		return tx.Runs().Create(ctx, r)
	}},
	{"Runs.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Runs().Get(ctx, tenant, w.run.ID)
	}},
	{"Runs.OfDeployment", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Runs().OfDeployment(ctx, tenant, w.deployment.ID, store.RunFilter{})
	}},
	{"Runs.Open", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Runs().Open(ctx, tenant, w.deployment.ID)
	}},
	{"Runs.OpenAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Runs().OpenAllTenants(ctx)
	}},
	{"Runs.Update", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		r := w.run
		r.TenantID, r.Phase = tenant, fleet.RunTerminated
		return nil, tx.Runs().Update(ctx, r)
	}},
	{"Runs.SetTargets", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Runs().SetTargets(ctx, tenant, w.run.ID, nil)
	}},
	{"Runs.Targets", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Runs().Targets(ctx, tenant, w.run.ID)
	}},
	{"Runs.WaitingForTarget", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Runs().WaitingForTarget(ctx, tenant, w.target.ID)
	}},
	{"Runs.WaitingForTargets", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Runs().WaitingForTargets(ctx, tenant, []fleet.TargetID{w.target.ID})
	}},
	{"Runs.SetTarget", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Runs().SetTarget(ctx, tenant, w.run.ID, fleet.RunTarget{TargetID: w.target.ID, Done: true})
	}},
	{"Runs.CountOpenTargets", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		open, failed, err := tx.Runs().CountOpenTargets(ctx, tenant, w.run.ID)
		return open + failed, err
	}},
	{"Runs.Trim", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Runs().Trim(ctx, tenant, 0)
	}},
}
