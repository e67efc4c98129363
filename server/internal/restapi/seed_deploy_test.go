package restapi_test

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// seedWeb creates a chart with an edit that is not in force, pinned, suspended, and with an error in its source.
func seedWeb(ctx context.Context, tx store.Tx) error {
	one, err := bundle(ctx, tx, secretYAML("one"))
	if err != nil {
		return err
	}
	two, err := bundle(ctx, tx, secretYAML("two"))
	if err != nil {
		return err
	}
	rendered := fleet.Rendered{Commit: "c0ffee", Key: "key", Digest: one, At: later, Volatile: true}
	return all(
		func() error {
			return tx.Deployments().Create(ctx, fleet.Deployment{
				ID: "dep-1", TenantID: "ten-1", Name: "web", Labels: map[string]string{"team": "shop"}, RepositoryID: "rep-1",
				Source: fleet.Source{RepoURL: repoURL, Path: "old"}, EnvironmentTenant: "ten-1", EnvironmentID: "env-1",
				Namespace: "web", Policy: fleet.Policy{Prune: true}, SpecRevision: 5, SourceRevision: 1, CreatedAt: born,
				Suspension: held, Pin: fleet.Pin{Revision: 1, Commit: "c0ffee", At: later, By: "anna", SourceRevision: 1},
			})
		},
		func() error { return tx.Deployments().SetRendered(ctx, "ten-1", "dep-1", rendered) },
		func() error { return tx.Deployments().SetDetected(ctx, "ten-1", "dep-1", fleet.SourceHelm) },
		func() error {
			return tx.Deployments().SetSourceError(ctx, "ten-1", "dep-1", fleet.ReasonRenderFailed, "deploy/a.yaml: not YAML", later)
		},
		func() error {
			_, err := tx.Revisions().Append(ctx, "ten-1", "dep-1", fleet.Revision{Commit: "c0ffee", RenderedAt: later, Bundles: map[string]string{"": one}}, 10)
			return err
		},
		func() error {
			_, err := tx.Revisions().Append(ctx, "ten-1", "dep-1", fleet.Revision{Commit: "beef", RenderedAt: later, Bundles: map[string]string{"x": two, "y": one, "z": one}}, 10)
			return err
		},
		func() error { return tx.PendingSpecs().Put(ctx, webSpec()) },
		func() error { return tx.PendingSpecs().SetProblem(ctx, webProblem()) },
		func() error {
			_, err := tx.Runs().Create(ctx, fleet.SyncRun{
				ID: "run-1", TenantID: "ten-1", DeploymentID: "dep-1", Kind: fleet.RunSync, Revision: "main", Phase: fleet.RunPending,
				By: "anna", CreatedAt: born, OperationID: "opn-1",
			})
			return err
		},
		func() error {
			return tx.Operations().Create(ctx, fleet.Operation{
				ID: "opn-1", TenantID: "ten-1", Action: "deployment.sync", Kind: "deployment", Name: "web", ResourceID: "dep-1",
				State: fleet.OperationInProgress, Message: "1 of 2", By: "anna", CreatedAt: born, UpdatedAt: later,
			})
		},
	)
}

// seedDeclared creates a deployment that a file in Git declared.
func seedDeclared(ctx context.Context, tx store.Tx) error {
	err := tx.Deployments().Create(ctx, fleet.Deployment{
		ID: "dep-3", TenantID: "ten-1", Name: "prod.old", RepositoryID: "rep-2", Source: fleet.Source{RepoURL: "https://git.example.com/config", Path: "."},
		EnvironmentTenant: "ten-1", EnvironmentID: "env-1", Namespace: "old", SpecRevision: 1, SourceRevision: 1, CreatedAt: born,
	})
	if err != nil {
		return err
	}
	return tx.Declarations().Put(ctx, fleet.Declaration{
		TenantID: "ten-1", DeploymentID: "dep-3", AgentName: "prod", Name: "old", RepoURL: "https://git.example.com/config",
		File: ".kedge/agents/prod/config.yaml", ReleasedAt: later,
	})
}

// webSpec is the newest spec of the deployment web.
func webSpec() fleet.PendingSpec {
	return fleet.PendingSpec{
		TenantID: "ten-1", DeploymentID: "dep-1", Labels: map[string]string{"team": "shop"}, RepositoryID: "rep-1",
		Source: fleet.Source{
			RepoURL: repoURL, Path: "deploy", Revision: "main", Variables: map[string]string{"zone": "{agent.name}"},
			Helm: fleet.Helm{
				ReleaseName: "r", ValuesFiles: []string{"/env/{agent.name}.yaml"}, Values: `{"image":{"tag":"v1"}}`, SkipCRDs: true,
				Set: []fleet.HelmSet{{Type: fleet.HelmSetString, Expression: "image.tag=1.10"}},
			},
		},
		EnvironmentTenant: "ten-1", EnvironmentID: "env-0", Environment: "default", Namespace: "web",
		Policy: fleet.Policy{
			Prune: true, Manual: true, Drift: fleet.DriftIgnore, Ignore: []string{"*:/spec/replicas"}, ReadyTimeout: 5 * time.Minute, PruneTimeout: time.Hour,
		},
		By: "anna", EditedAt: later,
	}
}

func webProblem() fleet.PendingSpec {
	return fleet.PendingSpec{TenantID: "ten-1", DeploymentID: "dep-1", SpecRevision: 6, Reason: fleet.ReasonSourceNotRendered, Problem: "deploy/b.yaml: not YAML"}
}

// seedPod creates a plain deployment, with two kept revisions.
func seedPod(ctx context.Context, tx store.Tx) error {
	digests := make([]string, 2)
	for i, value := range []string{"three", "four"} {
		var err error
		if digests[i], err = bundle(ctx, tx, secretYAML(value)); err != nil {
			return err
		}
	}
	return all(
		func() error {
			return tx.Deployments().Create(ctx, fleet.Deployment{
				ID: "dep-2", TenantID: "ten-1", Name: "pod", RepositoryID: "rep-1",
				Source: fleet.Source{RepoURL: repoURL, Path: "pod", Kind: fleet.SourcePlain, Revision: "main"}, EnvironmentTenant: "ten-1", EnvironmentID: "env-0",
				Namespace: "shop", Policy: fleet.Policy{Prune: true}, SpecRevision: 1, SourceRevision: 1, CreatedAt: born,
			})
		},
		func() error {
			return tx.Deployments().SetRendered(ctx, "ten-1", "dep-2", fleet.Rendered{Commit: podCommit, Key: "pod", Digest: digests[1], At: later})
		},
		func() error {
			for i, digest := range digests {
				commit := []string{"decade", podCommit}[i]
				if _, err := tx.Revisions().Append(ctx, "ten-1", "dep-2", fleet.Revision{Commit: commit, RenderedAt: later, Bundles: map[string]string{"": digest}}, 10); err != nil {
					return err
				}
			}
			return nil
		},
		func() error {
			return target(ctx, tx, fleet.Target{
				ID: "tgt-3", DeploymentID: "dep-2", AgentID: "agt-1", AgentName: "prod",
				Desired: fleet.Desired{Digest: digests[1], Commit: podCommit, Namespace: "shop", Policy: fleet.Policy{Prune: true}, SourceRevision: 1},
			})
		},
		func() error {
			_, err := tx.Targets().SetObserved(ctx, "ten-1", []store.AgentReport{{Agent: "agt-1", Report: store.Report{
				Target: "tgt-3", Full: true,
				Observed: fleet.Observed{
					Version: first, Digest: digests[1], Sync: fleet.SyncOutOfSync, Health: fleet.HealthCurrent,
					Reason: fleet.ReasonPruneHeld, AsOf: later,
				},
				Objects: []fleet.ObjectStatus{
					{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old"}, Sync: fleet.SyncHeld, Message: "too many"},
					{ObjectRef: fleet.ObjectRef{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "system:old"}, Sync: fleet.SyncHeld, Message: "too many"},
				},
			}}})
			return err
		},
	)
}

// first is the version of a new target.
var first = fleet.Version{Epoch: 2, Generation: 1}

func target(ctx context.Context, tx store.Tx, t fleet.Target) error {
	t.TenantID, t.AgentTenant, t.Desired.Version = "ten-1", "ten-1", first
	return tx.Targets().Create(ctx, t)
}

// seedTargets places the deployment web on two agents; one of them has failed, the other is away.
func seedTargets(ctx context.Context, tx store.Tx) error {
	dep, err := tx.Deployments().Get(ctx, "ten-1", "dep-1")
	if err != nil {
		return err
	}
	desired := fleet.Desired{Digest: dep.Rendered.Digest, Commit: "c0ffee", Namespace: "web", Policy: fleet.Policy{Prune: true}, SourceRevision: 1}
	report := func(agent fleet.AgentID, r store.Report) error {
		_, err := tx.Targets().SetObserved(ctx, "ten-1", []store.AgentReport{{Agent: agent, Report: r}})
		return err
	}
	return all(
		func() error {
			return target(ctx, tx, fleet.Target{ID: "tgt-1", DeploymentID: "dep-1", AgentID: "agt-1", AgentName: "prod", Desired: desired})
		},
		func() error {
			return target(ctx, tx, fleet.Target{ID: "tgt-2", DeploymentID: "dep-1", AgentID: "agt-2", AgentName: "lost", Desired: desired})
		},
		func() error {
			return tx.Targets().Create(ctx, fleet.Target{
				ID: "tgt-0", TenantID: "ten-1", AgentTenant: "ten-1", DeploymentID: "dep-1", AgentName: "gone", DetachedAt: born, DetachedWhy: `agent "gone" was deleted`,
				Desired: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Detached: true},
			})
		},
		func() error {
			return report("agt-2", store.Report{Target: "tgt-2", Observed: fleet.Observed{
				Version: first, Digest: desired.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: born,
			}})
		},
		func() error {
			newer := desired
			newer.Version = fleet.Version{Epoch: 2, Generation: 2}
			return tx.Targets().SetDesired(ctx, "ten-1", "tgt-2", newer)
		},
		func() error {
			return report("agt-1", store.Report{
				Target: "tgt-1", Full: true,
				Observed: fleet.Observed{
					Version: first, Digest: desired.Digest, Sync: fleet.SyncFailed, Health: fleet.HealthInProgress,
					Message: "1 object failed", AsOf: later,
				},
				Objects: []fleet.ObjectStatus{
					{
						ObjectRef: fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "naww", Name: "nginx"},
						Sync:      fleet.SyncFailed, Health: fleet.HealthNotFound, Reason: fleet.ReasonForbidden, Message: "forbidden",
					},
				},
			})
		},
	)
}

func seedLogs(ctx context.Context, tx store.Tx) error {
	return all(
		func() error {
			return tx.Audit().Append(ctx, fleet.AuditEvent{
				At: later, TenantID: "ten-1", Actor: "anna", Component: "rest", Action: "deployment.create", Kind: "deployment", Name: "web", ID: "dep-1",
				Request: "abc", Address: "10.0.0.1:1", Detail: "from " + repoURL,
			})
		},
		func() error {
			return tx.Events().Append(ctx, fleet.Event{
				At: later, TenantID: "ten-1", Type: fleet.EventWarning, Reason: fleet.ReasonApplyFailed, Agent: "prod", Deployment: "web",
				Object: "Deployment.apps naww/nginx", Message: "forbidden",
			})
		},
	)
}
