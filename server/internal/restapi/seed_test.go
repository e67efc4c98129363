package restapi_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const repoURL = "https://git.example.com/web"

// held is a suspension.
var held = fleet.Suspension{At: later, By: "anna", Reason: "holidays"}

// seed fills an empty database. The ids are short and the same in every test. The deployment web has every
// state that an answer can show; the deployment pod is plain.
func seed(ctx context.Context, tx store.Tx) error {
	for _, part := range []func(context.Context, store.Tx) error{seedTenants, seedTokens, seedAgents, seedSources, seedWeb, seedPod, seedDeclared, seedTargets, seedLogs, seedUpgrade} {
		if err := part(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// all runs the steps until one fails.
func all(steps ...func() error) error {
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func seedTenants(ctx context.Context, tx store.Tx) error {
	member := func(kind fleet.MemberKind, subject string, role fleet.Role) error {
		return tx.Members().Put(ctx, fleet.Member{TenantID: "ten-1", Kind: kind, Subject: subject, Role: role, CreatedAt: born})
	}
	environment := func(e fleet.Environment) error {
		e.CreatedAt = born
		return tx.Environments().Create(ctx, e)
	}
	return all(
		func() error {
			return tx.Tenants().Create(ctx, fleet.Tenant{ID: "ten-1", Name: "default", Quota: fleet.Quota{Agents: 3}, CreatedAt: born})
		},
		func() error {
			return tx.Tenants().Create(ctx, fleet.Tenant{ID: "ten-2", Name: "shop", CreatedAt: born})
		},
		func() error { return tx.Tenants().SetSuspension(ctx, "ten-2", held) },
		func() error { return tx.Settings().SetEpoch(ctx, 2) },
		func() error { return member(fleet.MemberGroup, "devs", fleet.RoleViewer) },
		func() error { return member(fleet.MemberPerson, "anna", fleet.RoleAdmin) },
		func() error { return member(fleet.MemberPerson, "bert", fleet.RoleDeployer) },
		func() error {
			return environment(fleet.Environment{ID: "env-0", TenantID: "ten-1", Name: "default", SpecRevision: 1})
		},
		func() error {
			return environment(fleet.Environment{
				ID: "env-1", TenantID: "ten-1", Name: "eu", Agents: []string{"prod"}, MatchLabels: map[string]string{"region": "eu"}, SpecRevision: 4,
			})
		},
		func() error {
			return environment(fleet.Environment{ID: "env-3", TenantID: "ten-1", Name: "us", Agents: []string{"lost"}, SpecRevision: 1})
		},
		func() error {
			return tx.Environments().Update(ctx, fleet.Environment{ID: "env-3", TenantID: "ten-1", Name: "us", Agents: []string{"lost"}, SpecRevision: 2, Suspension: held})
		},
		func() error {
			return tx.Tenants().Create(ctx, fleet.Tenant{ID: "ten-3", Name: "empty", CreatedAt: born})
		},
		func() error {
			return environment(fleet.Environment{ID: "env-2", TenantID: "ten-2", Name: "kiosk", SpecRevision: 1})
		},
		func() error {
			return tx.Grants().Create(ctx, fleet.Grant{
				ID: "grt-1", TenantID: "ten-1", EnvironmentID: "env-1", Grantee: "ten-2", Limits: fleet.Limits{Namespaces: []string{"shop"}}, CreatedAt: born,
			})
		},
		func() error {
			return tx.Grants().Create(ctx, fleet.Grant{ID: "grt-2", TenantID: "ten-2", EnvironmentID: "env-2", Grantee: "ten-1", CreatedAt: born})
		},
	)
}

func seedTokens(ctx context.Context, tx store.Tx) error {
	apiToken := func(t fleet.APIToken, secret string) error {
		t.Hash, t.CreatedAt, t.CreatedBy = auth.Hash(secret), born, "anna"
		return tx.Tokens().CreateAPIToken(ctx, t)
	}
	return all(
		func() error {
			return apiToken(fleet.APIToken{ID: "tok-admin", Name: "admin", Role: fleet.RoleFleetAdmin}, token)
		},
		func() error {
			return apiToken(fleet.APIToken{ID: "tok-spare", Name: "spare", Role: fleet.RoleFleetAdmin}, "kedge-api-spare")
		},
		func() error {
			return apiToken(fleet.APIToken{ID: "tok-other", TenantID: "ten-1", Name: "other", Role: fleet.RoleViewer}, otherToken)
		},
		func() error {
			return apiToken(fleet.APIToken{ID: "tok-1", TenantID: "ten-1", Name: "ci", Role: fleet.RoleDeployer, ExpiresAt: later}, "kedge-api-ci")
		},
		func() error {
			return tx.People().Bind(ctx, fleet.Person{
				Name: "jane@example.com", Issuer: "https://id.example.com", Subject: "1", DisplayName: "Jane", CreatedAt: born, LoggedInAt: later,
			})
		},
		func() error {
			return apiToken(fleet.APIToken{ID: "tok-jane", Name: "jane@example.com", Subject: "jane@example.com", ExpiresAt: later.Add(time.Hour)}, "kedge-session-jane")
		},
	)
}

func seedAgents(ctx context.Context, tx store.Tx) error {
	return all(
		func() error {
			return tx.Agents().Create(ctx, fleet.Agent{
				ID: "agt-1", TenantID: "ten-1", Name: "prod", Labels: map[string]string{"region": "eu"}, Scope: fleet.ScopeNamespaced,
				Namespaces: []string{"dude"}, SpecRevision: 5, CreatedAt: born,
			})
		},
		func() error {
			return tx.Agents().Create(ctx, fleet.Agent{ID: "agt-2", TenantID: "ten-1", Name: "lost", Scope: fleet.ScopeCluster, SpecRevision: 1, CreatedAt: born})
		},
		func() error {
			return tx.Connections().Put(ctx, fleet.Connection{
				SessionID: "ses-0", AgentID: "agt-1", TenantID: "ten-1", Replica: "pod-a", Server: "srv-0", Version: "v1.2.3", ClusterUID: "uid",
				ConnectedAt: born, LastSeenAt: later, DisconnectedAt: later,
			})
		},
		func() error {
			return tx.Connections().Put(ctx, fleet.Connection{
				SessionID: "ses-2", AgentID: "agt-2", TenantID: "ten-1", Replica: "pod-c", Server: "srv-0", Version: "v1.2.3",
				ConnectedAt: born, LastSeenAt: later, DisconnectedAt: later,
			})
		},
		func() error {
			return tx.Tokens().CreateAgentToken(ctx, fleet.AgentToken{
				ID: "tok-2", TenantID: "ten-1", AgentID: "agt-1", Hash: auth.Hash(agentToken), CreatedAt: born, CreatedBy: "anna", LastUsed: later,
			})
		},
	)
}

func seedSources(ctx context.Context, tx store.Tx) error {
	keys, err := sealer()
	if err != nil {
		return err
	}
	credential := fleet.Credential{
		ID: "crd-1", TenantID: "ten-1", Name: "robot", Kind: fleet.CredentialHTTPS, Username: "robot", SpecRevision: 7, CreatedAt: born, UpdatedAt: later,
	}
	if credential.Sealed, err = keys.Seal(seal.NewSecret("hush"), "ten-1/crd-1"); err != nil {
		return err
	}
	return all(
		func() error { return tx.Credentials().Create(ctx, credential) },
		func() error {
			spare := credential
			spare.ID, spare.Name = "crd-2", "spare"
			return tx.Credentials().Create(ctx, spare)
		},
		func() error {
			return tx.Repositories().Create(ctx, fleet.Repository{
				ID: "rep-1", TenantID: "ten-1", URL: repoURL, CredentialID: "crd-1", SpecRevision: 2, CreatedAt: born,
			})
		},
		func() error {
			return tx.Repositories().SetChecked(ctx, "ten-1", "rep-1", later, "no route", fleet.ReasonRepositoryUnreadable)
		},
		func() error {
			return tx.Repositories().Create(ctx, fleet.Repository{ID: "rep-2", TenantID: "ten-1", URL: "https://git.example.com/config", SpecRevision: 1, CreatedAt: born})
		},
		func() error {
			return tx.Repositories().Create(ctx, fleet.Repository{ID: "rep-3", TenantID: "ten-1", URL: "https://git.example.com/unused", SpecRevision: 2, CreatedAt: born})
		},
		func() error {
			return tx.AgentConfigs().Put(ctx, fleet.AgentConfig{TenantID: "ten-1", AgentID: "agt-1", RepositoryID: "rep-2", SpecRevision: 1, CreatedAt: born})
		},
		func() error {
			return tx.AgentConfigs().SetRead(ctx, fleet.AgentConfig{
				TenantID: "ten-1", AgentID: "agt-1", RepositoryID: "rep-2", State: fleet.ConfigInvalid, File: ".kedge/agents/prod/config.yaml",
				Commit: "c2", Live: "c1", ReadAt: later, More: 3,
				Errors:  []fleet.ConfigFinding{{Field: "deployments[0].policy.drift", Line: 7, Message: `"fix" is not one of correct, report, ignore`}},
				Notices: []fleet.ConfigFinding{{Field: "ci_access", Line: 20, Message: "is not used"}},
			})
		},
		func() error {
			return tx.GitLabProjects().Put(ctx, fleet.GitLabProject{TenantID: "ten-1", Project: "42", URL: "https://git.example/app.git"})
		},
	)
}

// bundle stores objects, and returns their digest.
func bundle(ctx context.Context, tx store.Tx, yaml string) (string, error) {
	objects, err := manifest.Parse("test", []byte(yaml))
	if err != nil {
		return "", err
	}
	set, err := manifest.NewSet(objects, "shop")
	if err != nil {
		return "", err
	}
	digest, content, size := set.Pack()
	return digest, tx.Bundles().Put(ctx, fleet.Bundle{TenantID: "ten-1", Digest: digest, Content: content, Size: size, Objects: len(objects), CreatedAt: born})
}

func secretYAML(value string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: " + value + "}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
}

// engineUpgrade is an upgrade that is rolling back.
func engineUpgrade() fleet.EngineUpgrade {
	return fleet.EngineUpgrade{
		ID: "upg-1", TenantID: "ten-1", Name: "argocd-3", Revision: "v3.1.0", Timeout: 5 * time.Minute, Phase: fleet.EngineUpgradeRunning,
		Reason: fleet.ReasonEngineUpgradeRunning, Halt: fleet.HaltAfterInstance, HaltedBy: "bert", By: "anna", Step: 4, CreatedAt: born,
		Instances: []fleet.EngineUpgradeInstance{{
			AgentID: "agt-9", Agent: "prod-argocd", DeploymentID: "dep-9", Deployment: "argocd", CanaryID: "dep-8", Canary: "canary",
			Phase: fleet.EngineInstanceRollingBack, Reason: fleet.ReasonEngineInstallFailed, Message: "sync run 2 failed", Before: 1, BeforeCommit: "c0ffee",
			Commit: "beef", RunID: "run-9", Deadline: later, StartedAt: born,
		}},
	}
}

func seedUpgrade(ctx context.Context, tx store.Tx) error {
	err := tx.AccessRules().Create(ctx, fleet.AccessRule{
		ID: "acr-1", TenantID: "ten-1", Name: "oncall", SpecRevision: 1, CreatedAt: born, Agents: []fleet.AccessAgent{{ID: "agt-1"}},
		Environments: []fleet.AccessEnvironment{{ID: "env-1"}},
		Subjects:     []fleet.AccessSubject{{Kind: fleet.AccessGroup, Name: "oncall"}, {Kind: fleet.AccessPerson, Name: "anna@example.com"}},
	})
	if err != nil {
		return err
	}
	return tx.EngineUpgrades().Create(ctx, engineUpgrade())
}
