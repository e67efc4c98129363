package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// world is one tenant with one of everything. It has more than 20 fields because the store has that many tables.
type world struct {
	tenant     fleet.Tenant
	guest      fleet.Tenant // has a grant for the environment of the tenant, and nothing else
	member     fleet.Member
	person     fleet.Person // named like the tenant, and of none
	agent      fleet.Agent
	connection fleet.Connection
	token      fleet.AgentToken
	apiToken   fleet.APIToken
	env        fleet.Environment
	grant      fleet.Grant
	access     fleet.AccessRule
	credential fleet.Credential
	repo       fleet.Repository
	bundle     fleet.Bundle
	deployment fleet.Deployment
	variant    fleet.Variant
	revision   fleet.Revision
	target     fleet.Target
	objects    []fleet.ObjectStatus
	run        fleet.SyncRun
	runTarget  fleet.RunTarget
	operation  fleet.Operation
	upgrade    fleet.EngineUpgrade
	audit      fleet.AuditEvent
	event      fleet.Event

	// These three only after withConfig.
	config   fleet.AgentConfig
	declares fleet.Declaration
	owned    fleet.Owned
	project  fleet.GitLabProject
}

// newWorld creates a tenant and fills it. Two worlds differ only in ids, so that a query without the tenant
// finds the rows of the other one.
func newWorld(t *testing.T, s store.Store, name string) *world {
	t.Helper()
	w := &world{
		tenant: fleet.Tenant{ID: fleet.NewTenantID(), Name: name, Quota: fleet.Quota{Agents: 3, Tokens: 5}, CreatedAt: at(0)},
		guest:  fleet.Tenant{ID: fleet.NewTenantID(), Name: name + "-guest", CreatedAt: at(0)},
	}
	tenant := w.tenant.ID
	w.member = fleet.Member{TenantID: tenant, Kind: fleet.MemberPerson, Subject: "ada", Role: fleet.RoleDeployer, CreatedAt: at(1)}
	w.person = newPerson(name, "id-of-"+name)
	w.agent = newAgent(tenant, "edge-1")
	w.agent.Capabilities = capabilities.Hash()
	w.connection = newConnection(w.agent, "pod-0")
	w.token = newToken(w.agent)
	w.apiToken = newAPIToken(tenant, "ci")
	w.env = fleet.Environment{
		ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: "staging", SpecRevision: 1,
		Agents: []string{"edge-1", "edge-2"}, MatchLabels: map[string]string{"region": "eu"}, CreatedAt: at(4),
	}
	w.grant = newGrant(w.env, w.guest.ID)
	w.access = newAccessRule(w, "work")
	w.credential = newCredential(tenant, "git")
	w.repo = fleet.Repository{
		ID: fleet.NewRepositoryID(), TenantID: tenant, URL: "https://git.example/app.git", CredentialID: w.credential.ID, SpecRevision: 1, CreatedAt: at(5),
	}
	w.bundle = newBundle(tenant, "one")
	w.deployment = newDeployment(w, "shop")
	w.variant = fleet.Variant{Name: "v1", Rendered: fleet.Rendered{Commit: "c0ffee", Key: "key-v1", Digest: w.bundle.Digest, At: at(8), Reads: []string{"x"}, Volatile: true}, Error: "no label"}
	w.revision = fleet.Revision{Seq: 1, Commit: "c0ffee", RenderedAt: at(8), Bundles: map[string]string{"": w.bundle.Digest}}
	w.target = newTarget(w, w.deployment, w.agent)
	w.objects = []fleet.ObjectStatus{
		newObject("apps", "Deployment", "shop", "web", "ready"),
		newObject("", "Service", "shop", "web", ""),
	}
	w.run = newRun(w.deployment)
	w.runTarget = fleet.RunTarget{TargetID: w.target.ID, Version: fleet.Version{Epoch: 1, Generation: 3}, Reason: fleet.ReasonApplying, Message: "waiting"}
	w.operation = newOperation(w)
	w.upgrade = newEngineUpgrade(w, "argocd-3")
	w.audit = fleet.AuditEvent{
		At: at(9), TenantID: tenant, Actor: "ada", Component: "rest", Action: "deployment.create", Kind: "deployment",
		Name: "shop", ID: string(w.deployment.ID), Request: "req-1", Address: "192.0.2.7", Detail: "from main",
	}
	w.event = fleet.Event{
		At: at(9), TenantID: tenant, Type: fleet.EventNormal, Reason: "Synced",
		Agent: w.agent.Name, Deployment: w.deployment.Name, Message: "all is well",
	}
	update(t, s, w.fill)
	w.grant.Environment, w.grant.OwnerName, w.grant.GranteeName = w.env.Name, w.tenant.Name, w.guest.Name
	w.deployment.Environment, w.deployment.Source.RepoURL = w.env.Name, w.repo.URL
	w.target.DeploymentName = w.deployment.Name
	w.run.Seq, w.run.Deployment = 1, w.deployment.Name
	return w
}

func (w *world) fill(ctx context.Context, tx store.Tx) error {
	tenant := w.tenant.ID
	steps := []func() error{
		func() error { return tx.Tenants().Create(ctx, w.tenant) },
		func() error { return tx.Tenants().Create(ctx, w.guest) },
		func() error { return tx.Members().Put(ctx, w.member) },
		func() error { return tx.People().Bind(ctx, w.person) },
		func() error { return tx.Agents().Create(ctx, w.agent) },
		func() error { return tx.Agents().SetCapabilities(ctx, tenant, w.agent.ID, capabilities) },
		func() error { return tx.Connections().Put(ctx, w.connection) },
		func() error { return tx.Tokens().CreateAgentToken(ctx, w.token) },
		func() error { return tx.Tokens().CreateAPIToken(ctx, w.apiToken) },
		func() error { return tx.Environments().Create(ctx, w.env) },
		func() error { return tx.Grants().Create(ctx, w.grant) },
		func() error { return tx.AccessRules().Create(ctx, w.access) },
		func() error { return tx.Credentials().Create(ctx, w.credential) },
		func() error { return tx.Repositories().Create(ctx, w.repo) },
		func() error { return tx.Bundles().Put(ctx, w.bundle) },
		func() error { return tx.Deployments().Create(ctx, w.deployment) },
		func() error { return tx.Deployments().PutVariant(ctx, tenant, w.deployment.ID, w.variant) },
		func() error {
			_, err := tx.Revisions().Append(ctx, tenant, w.deployment.ID, w.revision, 10)
			return err
		},
		func() error { return tx.Targets().Create(ctx, w.target) },
		func() error {
			_, err := observe(ctx, tx, tenant, w.agent.ID, store.Report{
				Target: w.target.ID, Observed: w.target.Observed, Full: true, Objects: w.objects})
			return err
		},
		func() error {
			_, err := tx.Runs().Create(ctx, w.run)
			return err
		},
		func() error { return tx.Runs().SetTargets(ctx, tenant, w.run.ID, []fleet.RunTarget{w.runTarget}) },
		func() error { return tx.Operations().Create(ctx, w.operation) },
		func() error { return tx.EngineUpgrades().Create(ctx, w.upgrade) },
		func() error { return tx.Audit().Append(ctx, w.audit) },
		func() error { return tx.Events().Append(ctx, w.event) },
		func() error {
			_, _, err := tx.Replies().Claim(ctx, store.Reply{Scope: w.tenant.Name, Key: "k", At: at(9)})
			return err
		},
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("filling tenant %q, step %d: %w", w.tenant.Name, i, err)
		}
	}
	return nil
}

// capabilities are those of the agents of all worlds.
var capabilities = fleet.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "apps/v1/Deployment", "v1"}}

func newAgent(tenant fleet.TenantID, name string) fleet.Agent {
	return fleet.Agent{
		ID: fleet.NewAgentID(), TenantID: tenant, Name: name, Labels: map[string]string{"region": "eu", "tier": ""},
		Scope: fleet.ScopeNamespaced, Namespaces: []string{"dude", "naww"}, EngineNamespace: "argocd", DeliverGitCredentials: true,
		Kinds: fleet.KindFilter{Include: []string{"*.apps", "ConfigMap"}, Exclude: []string{"*"}}, KindsFromConfig: true, Instance: true, Draining: true, Tunnel: true, SpecRevision: 1, CreatedAt: at(1),
	}
}

func newConnection(a fleet.Agent, replica string) fleet.Connection {
	return fleet.Connection{
		SessionID: fleet.NewSessionID(), AgentID: a.ID, TenantID: a.TenantID, Replica: replica, Server: "srv-1", Version: "v0.1.0",
		KubeVersion: "v1.36.3", ClusterUID: "uid", EngineNamespace: "argocd", RemoteAddr: "192.0.2.1:4711", ConnectedAt: at(2), LastSeenAt: at(3),
	}
}

func newReplica(id string, beat int) fleet.ServerReplica {
	return fleet.ServerReplica{ID: id, Address: "https://" + id, Version: "v0.1.0", StartedAt: at(1), BeatAt: at(beat)}
}

func newToken(a fleet.Agent) fleet.AgentToken {
	id := fleet.NewTokenID()
	return fleet.AgentToken{ID: id, TenantID: a.TenantID, AgentID: a.ID, Hash: hashOf(id), CreatedAt: at(3), CreatedBy: "ada"}
}

func newAPIToken(tenant fleet.TenantID, name string) fleet.APIToken {
	id := fleet.NewTokenID()
	return fleet.APIToken{
		ID: id, TenantID: tenant, Name: name, Role: fleet.RoleDeployer, Hash: hashOf(id), CreatedAt: at(3), CreatedBy: "ada", ExpiresAt: at(5000),
	}
}

func hashOf(id fleet.TokenID) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:]
}

func newGrant(env fleet.Environment, grantee fleet.TenantID) fleet.Grant {
	return fleet.Grant{
		ID: fleet.NewGrantID(), TenantID: env.TenantID, EnvironmentID: env.ID, Grantee: grantee, CreatedAt: at(4),
		Limits:         fleet.Limits{Namespaces: []string{"guests", "more"}, Kinds: []string{"ConfigMap", "Deployment.apps"}},
		ServiceAccount: "guests/deployer",
	}
}

func newCredential(tenant fleet.TenantID, name string) fleet.Credential {
	return fleet.Credential{
		ID: fleet.NewCredentialID(), TenantID: tenant, Name: name, Kind: fleet.CredentialHTTPS, Username: "bot", KnownHosts: "a\nb",
		Sealed: fleet.Sealed{KeyID: "k1", Key: []byte{1, 0, 2}, Data: []byte{3, 0, 4}}, SpecRevision: 1, CreatedAt: at(4), UpdatedAt: at(5),
	}
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
		Labels: map[string]string{"team": "web", "tier": ""},
		Source: fleet.Source{Path: "deploy", Revision: "main", Globs: []string{"z/*.yaml", "a/**"},
			Variables: map[string]string{"name": "{agent.name}", "size": "1"},
			Kind:      fleet.SourceHelm,
			Helm: fleet.Helm{ReleaseName: "r", ValuesFiles: []string{"z.yaml", "/a.yaml"}, Values: `{"a":1}`, SkipCRDs: true,
				Set: []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: "a=1,b=2"}, {Type: fleet.HelmSetJSON, Expression: `c="d e"`}}}},
		EnvironmentTenant: w.tenant.ID, EnvironmentID: w.env.ID, Namespace: "shop",
		Policy:       wholePolicy(),
		Suspension:   fleet.Suspension{At: at(7), By: "ada", Reason: "holidays"},
		Pin:          fleet.Pin{Revision: 1, Commit: "c0ffee", At: at(7), By: "ada", SourceRevision: 2},
		SpecRevision: 1, CreatedAt: at(7), SourceRevision: 3,
		Rendered: fleet.Rendered{Commit: "c0ffee", Key: "key-1", Digest: w.bundle.Digest, At: at(8), Reads: []string{"f a", "d ."}, Volatile: true}, SourceSince: at(8),
		Detected: fleet.SourceHelm,
	}
}

// wholePolicy has no field that is zero but AllowEmpty and Manual.
func wholePolicy() fleet.Policy {
	return fleet.Policy{
		Prune: true, Adopt: true, PruneOnDetach: true, Force: true, Replace: true, DryRun: true, Drift: fleet.DriftReport,
		Ignore: []string{"Deployment.apps/web:/spec/replicas", `*:/metadata/annotations/a"b`}, ServiceAccount: "shop/deployer",
		Propagation: fleet.PropagationOrphan, PruneTimeout: 90 * time.Second, ReadyTimeout: 5*time.Minute + time.Millisecond,
		PruneLimit: fleet.PruneLimit{Objects: 3, Percent: 7}, CreateNamespace: true,
	}
}

func newTarget(w *world, d fleet.Deployment, a fleet.Agent) fleet.Target {
	return fleet.Target{
		ID: fleet.NewTargetID(), TenantID: w.tenant.ID, DeploymentID: d.ID, AgentTenant: a.TenantID, AgentID: a.ID, AgentName: a.Name,
		Variant: "v1", VariantError: "no label", Kinds: fleet.KindFilter{Include: []string{"Lease.*"}, Exclude: []string{"*.apps", "Secret"}}, KindError: "Secret shop/b", DetachedAt: at(8), DetachedWhy: "relabelled", LeftIn: "uid-left",
		Desired: fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: 3}, Digest: w.bundle.Digest, Commit: "c0ffee", Namespace: "shop",
			Policy: wholePolicy(), SourceRevision: 2, HoldPrune: true, HoldProtected: true, Consent: true, Confirmed: []string{"Deployment.apps shop/web", "Namespace old"}, Detached: true,
			HandOvers: []fleet.HandOver{
				{Reason: fleet.ReasonHandOverPending, To: "dep-taker", Deployment: "taker", Objects: []string{"ConfigMap shop/a", "Secret shop/b"}},
				{Reason: fleet.ReasonCommitNotEvaluated, Repository: "repo-1"},
			},
		},
		Observed: fleet.Observed{
			Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: "sha256:older", Sync: fleet.SyncFailed,
			Health: fleet.HealthInProgress, Reason: fleet.ReasonApplyFailed, Message: "waiting", AsOf: at(8),
		},
	}
}

func newRun(d fleet.Deployment) fleet.SyncRun {
	return fleet.SyncRun{
		ID: fleet.NewRunID(), TenantID: d.TenantID, DeploymentID: d.ID, Kind: fleet.RunSync, Revision: "main", Kept: 1,
		Phase: fleet.RunRunning, Reason: fleet.ReasonWaitingForTargets, Message: "at it", Commit: "c0ffee", By: "ada", CreatedAt: at(8), StartedAt: at(9),
		OperationID: fleet.NewOperationID(),
	}
}

func newOperation(w *world) fleet.Operation {
	return fleet.Operation{
		ID: fleet.NewOperationID(), TenantID: w.tenant.ID, Action: "deployment.sync", Kind: "deployment", Name: w.deployment.Name,
		ResourceID: string(w.deployment.ID), State: fleet.OperationWaiting, Message: "soon", By: "ada", CreatedAt: at(8), UpdatedAt: at(8),
	}
}

func newObject(group, kind, namespace, name, message string) fleet.ObjectStatus {
	return fleet.ObjectStatus{
		ObjectRef: fleet.ObjectRef{Group: group, Version: "v1", Kind: kind, Namespace: namespace, Name: name},
		Sync:      fleet.SyncSynced, Health: fleet.HealthCurrent, Reason: fleet.ReasonSynced, Message: message,
	}
}
