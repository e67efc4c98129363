package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// world is one tenant with one of everything.
type world struct {
	tenant     fleet.Tenant
	agent      fleet.Agent
	connection fleet.Connection
	token      fleet.AgentToken
	env        fleet.Environment
	repo       fleet.Repository
	bundle     fleet.Bundle
	deployment fleet.Deployment
	target     fleet.Target
	objects    []fleet.ObjectStatus
	event      fleet.Event
}

// newWorld makes a tenant and fills it. Two worlds differ in ids only, so that a query that
// forgets the tenant meets the other one's rows.
func newWorld(t *testing.T, s store.Store, name string) *world {
	t.Helper()
	w := &world{tenant: fleet.Tenant{ID: fleet.NewTenantID(), Name: name, CreatedAt: at(0)}}
	tenant := w.tenant.ID
	w.agent = newAgent(tenant, "edge-1")
	w.connection = newConnection(w.agent, "pod-0")
	w.token = newToken(w.agent)
	w.env = fleet.Environment{
		ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: "staging",
		Agents: []string{"edge-1", "edge-2"}, MatchLabels: map[string]string{"region": "eu"}, CreatedAt: at(4),
	}
	w.repo = fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: tenant, URL: "https://git.example/app.git", CreatedAt: at(5)}
	w.bundle = newBundle(tenant, "one")
	w.deployment = newDeployment(w, "shop")
	w.target = newTarget(w, w.deployment, w.agent)
	w.objects = []fleet.ObjectStatus{
		newObject("apps", "Deployment", "shop", "web", "ready"),
		newObject("", "Service", "shop", "web", ""),
	}
	w.event = fleet.Event{
		At: at(9), TenantID: tenant, Type: fleet.EventNormal, Reason: "Synced",
		Agent: w.agent.Name, Deployment: w.deployment.Name, Message: "all is well",
	}
	update(t, s, w.fill)
	w.deployment.Environment, w.deployment.Source.RepoURL = w.env.Name, w.repo.URL
	w.target.DeploymentName, w.target.AgentName = w.deployment.Name, w.agent.Name
	return w
}

func (w *world) fill(ctx context.Context, tx store.Tx) error {
	err := errors.Join(
		tx.Tenants().Create(ctx, w.tenant),
		tx.Agents().Create(ctx, w.agent),
		tx.Connections().Put(ctx, w.connection),
		tx.Tokens().CreateAgentToken(ctx, w.token),
		tx.Environments().Create(ctx, w.env),
		tx.Repositories().Create(ctx, w.repo),
		tx.Bundles().Put(ctx, w.bundle),
		tx.Deployments().Create(ctx, w.deployment),
		tx.Targets().Create(ctx, w.target),
		tx.Targets().SetObserved(ctx, w.tenant.ID, w.agent.ID, store.Report{
			Target: w.target.ID, Observed: w.target.Observed, Full: true, Objects: w.objects,
		}),
		tx.Events().Append(ctx, w.event),
	)
	if err != nil {
		return fmt.Errorf("filling tenant %q: %w", w.tenant.Name, err)
	}
	return nil
}

func newAgent(tenant fleet.TenantID, name string) fleet.Agent {
	return fleet.Agent{
		ID: fleet.NewAgentID(), TenantID: tenant, Name: name, Labels: map[string]string{"region": "eu", "tier": ""},
		Scope: fleet.ScopeNamespaced, Namespaces: []string{"dude", "naww"}, CreatedAt: at(1),
	}
}

func newConnection(a fleet.Agent, replica string) fleet.Connection {
	return fleet.Connection{
		SessionID: fleet.NewSessionID(), AgentID: a.ID, TenantID: a.TenantID, Replica: replica, Version: "v0.1.0",
		KubeVersion: "v1.36.3", ClusterUID: "uid", RemoteAddr: "192.0.2.1:4711", ConnectedAt: at(2), LastSeenAt: at(3),
	}
}

func newToken(a fleet.Agent) fleet.AgentToken {
	id := fleet.NewTokenID()
	return fleet.AgentToken{ID: id, TenantID: a.TenantID, AgentID: a.ID, Hash: hashOf(id), CreatedAt: at(3)}
}

func hashOf(id fleet.TokenID) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:]
}

func newBundle(tenant fleet.TenantID, content string) fleet.Bundle {
	return fleet.Bundle{
		TenantID: tenant, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content))),
		Content: []byte("zstd\x00" + content), Size: 42, Objects: 2, CreatedAt: at(6),
	}
}

func newDeployment(w *world, name string) fleet.Deployment {
	return fleet.Deployment{
		ID: fleet.NewDeploymentID(), TenantID: w.tenant.ID, Name: name, RepositoryID: w.repo.ID,
		Source:        fleet.Source{Path: "deploy", Revision: "main", Globs: []string{"z/*.yaml", "a/**"}},
		EnvironmentID: w.env.ID, Namespace: "shop", Policy: fleet.Policy{Prune: true, Adopt: true}, CreatedAt: at(7),
		Rendered: fleet.Rendered{Commit: "c0ffee", Key: "key-1", Digest: w.bundle.Digest, At: at(8)}, SourceAt: at(8),
	}
}

func newTarget(w *world, d fleet.Deployment, a fleet.Agent) fleet.Target {
	return fleet.Target{
		ID: fleet.NewTargetID(), TenantID: w.tenant.ID, DeploymentID: d.ID, AgentID: a.ID,
		Desired: fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: 3}, Digest: w.bundle.Digest, Commit: "c0ffee", Namespace: "shop",
			Policy: fleet.Policy{Prune: true, Adopt: true}, HoldPrune: true,
		},
		Observed: fleet.Observed{
			Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: "sha256:older", Sync: fleet.SyncFailed,
			Health: fleet.HealthInProgress, Message: "waiting", AsOf: at(8),
		},
	}
}

func newObject(group, kind, namespace, name, message string) fleet.ObjectStatus {
	return fleet.ObjectStatus{
		ObjectRef: fleet.ObjectRef{Group: group, Version: "v1", Kind: kind, Namespace: namespace, Name: name},
		Sync:      fleet.SyncSynced, Health: fleet.HealthCurrent, Message: message,
	}
}

// dump reads everything of a tenant.
func dump(t *testing.T, s store.Store, w *world) map[string]any {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (map[string]any, error) {
		out, id := map[string]any{}, w.tenant.ID
		var errs []error
		keep := func(name string, value any, err error) {
			out[name] = value
			errs = append(errs, err)
		}
		agents, err := tx.Agents().List(ctx, id, store.Page{})
		keep("agents", agents, err)
		connections, err := tx.Connections().List(ctx, id)
		keep("connections", connections, err)
		tokens, err := tx.Tokens().AgentTokens(ctx, id, w.agent.ID)
		keep("tokens", tokens, err)
		environments, err := tx.Environments().List(ctx, id, store.Page{})
		keep("environments", environments, err)
		repositories, err := tx.Repositories().List(ctx, id)
		keep("repositories", repositories, err)
		deployments, err := tx.Deployments().List(ctx, id, store.Page{})
		keep("deployments", deployments, err)
		targets, err := tx.Targets().OfAgent(ctx, id, w.agent.ID)
		keep("targets", targets, err)
		objects, err := tx.Targets().Objects(ctx, id, w.target.ID)
		keep("objects", objects, err)
		bundle, err := tx.Bundles().Get(ctx, id, w.bundle.Digest)
		keep("bundle", bundle, err)
		events, err := tx.Events().List(ctx, id, store.EventFilter{})
		keep("events", events, err)
		changes, err := tx.Changes().After(ctx, id, 0, 1000)
		keep("changes", changes, err)
		return out, errors.Join(errs...)
	})
}
