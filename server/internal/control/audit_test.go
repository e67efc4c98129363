package control_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// reads are the use cases without relevant changes.
var reads = []string{
	"APITokens", "Access", "AccessRule", "AccessRules", "Agent", "ForeignApplications", "AgentConfig", "AgentObjects", "AgentTokens", "Agents", "Audit", "Credential", "Credentials", "Deployment", "DeploymentDeletion", "Deployments", "DetachedTargets", "Diagnose", "Diff", "EngineUpgrade", "EngineUpgrades", "Environment", "Environments", "Events",
	"Fleet", "Follow", "GitLabProjects", "Grant", "Grants", "HeldPrunes", "Images", "Members", "Operation", "Operations", "People", "Person", "Repositories", "Repository", "Revisions", "Run", "RunWaiting", "Runs", "SyncRun", "TargetObjects", "Targets",
	"Tenant", "Tenants", "Webhook",
	// It stores nothing, and each request with the token is recorded.
	"CreateKubeToken",
	// Stored responses: their requests are recorded separately.
	"ClaimReply", "CompleteReply", "ReleaseReply",
	// For the Kubernetes API. OwnerMissing records what the server found, with an event.
	"CheckRepository", "Owned", "OwnedDeployments", "OwnedRuns", "OwnerMissing",
	// It writes to Git, which does not exist here: TestSetImages checks its record.
	"SetImages",
}

// scene is a tenant "acme" with something of everything for a write to work on.
type scene struct {
	*fixture
	agent   fleet.Agent
	token   fleet.AgentToken
	api     fleet.APIToken
	grant   fleet.Grant
	repo    fleet.RepositoryID
	run     fleet.SyncRun
	session auth.Principal
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{fixture: newFixture(t)}
	s.tenant(t, "acme")
	s.tenant(t, "guest")
	s.agent = s.enroll(t, "acme", "paris", nil)
	tokens, err := s.AgentTokens(s.ctx, root, "acme", "paris", store.Page{})
	ok(t, err)
	s.token = tokens[0]
	s.api, _, err = s.CreateAPIToken(s.ctx, root, "acme", control.CreateAPIToken{Name: "ci", Role: fleet.RoleViewer})
	ok(t, err)
	_, err = s.CreateEnvironment(s.ctx, root, "acme", control.CreateEnvironment{Name: "prod", Agents: []string{"paris"}})
	ok(t, err)
	s.grant, err = s.CreateGrant(s.ctx, root, "acme", control.CreateGrant{Environment: "default", Grantee: "guest"})
	ok(t, err)
	ok(t, s.PutMember(s.ctx, root, "acme", fleet.Member{Kind: fleet.MemberGroup, Subject: "dev", Role: fleet.RoleViewer}))
	s.repo = s.deploy(t, "acme", "web", "").RepositoryID
	s.render(t, "acme", "web", "1")
	s.render(t, "acme", "web", "2")
	s.run, err = s.CreateRun(s.ctx, root, "acme", "web", control.CreateRun{})
	ok(t, err)
	secret, _, err := s.StartSession(s.ctx, control.Login{Issuer: "https://id.example.com", Subject: "1", Name: "alice"})
	ok(t, err)
	s.session, err = s.Authenticate(s.ctx, secret)
	ok(t, err)
	return s
}

// resource returns a principal that acts for a Kubernetes resource.
func (s *scene) resource() auth.Principal {
	return auth.Principal{
		Name: "GitOpsDeployment acme/owned", Component: "kubernetes", Roles: map[fleet.TenantID]fleet.Role{s.agent.TenantID: fleet.RoleAdmin},
		Owner: fleet.Owner{Kind: "GitOpsDeployment", Namespace: "acme", Name: "owned", UID: "uid-owned", Generation: 1, Created: 100},
	}
}

func (s *scene) suspendAll() error {
	_, err1 := s.SuspendTenant(s.ctx, root, "acme", "x")
	_, err2 := s.SuspendEnvironment(s.ctx, root, "acme", "prod", "x")
	_, err3 := s.SuspendDeployment(s.ctx, root, "acme", "web", "x")
	_, err4 := s.Freeze(s.ctx, root, "x")
	return errors.Join(err1, err2, err3, err4)
}

func (s *scene) accessRule(name string) error {
	return result(s.CreateAccessRule(s.ctx, root, "acme", control.CreateAccessRule{Name: name, AllAgents: true, Subjects: subject(fleet.AccessToken, "ci")}))
}

// result drops what a use-case returns beside its error.
func result[T any](_ T, err error) error { return err }

func result2[T, U any](_ T, _ U, err error) error { return err }

// write is one use-case that changes something: prepare first, then do.
type write struct {
	prepare func(s *scene) error
	do      func(s *scene) error
}

func simply(do func(s *scene) error) write { return write{do: do} }

// tenancyWrites are the use-cases of tenants, identity, agents and environments.
func tenancyWrites() map[string]write {
	suspended := func(do func(s *scene) error) write { return write{(*scene).suspendAll, do} }
	return map[string]write{
		"SetAgentConfig": {do: func(s *scene) error {
			return result(s.SetAgentConfig(s.ctx, root, "acme", "paris", "https://git.example.com/fleet"))
		}},
		"UnsetAgentConfig": {
			prepare: func(s *scene) error {
				return result(s.SetAgentConfig(s.ctx, root, "acme", "paris", "https://git.example.com/fleet"))
			},
			do: func(s *scene) error { return s.UnsetAgentConfig(s.ctx, root, "acme", "paris") },
		},
		"SetGitLabProject": {do: func(s *scene) error {
			return result(s.SetGitLabProject(s.ctx, root, "acme", "42", "https://git.example.com/app"))
		}},
		"UnsetGitLabProject": {
			prepare: func(s *scene) error {
				return result(s.SetGitLabProject(s.ctx, root, "acme", "42", "https://git.example.com/app"))
			},
			do: func(s *scene) error { return s.UnsetGitLabProject(s.ctx, root, "acme", "42") },
		},
		"CreateTenant": simply(func(s *scene) error { return result(s.CreateTenant(s.ctx, root, control.CreateTenant{Name: "new"})) }),
		"UpdateTenant": simply(func(s *scene) error {
			return result(s.UpdateTenant(s.ctx, root, "acme", control.UpdateTenant{Quota: &fleet.Quota{Agents: 9}}, control.Match{}))
		}),
		"DeleteTenant":  simply(func(s *scene) error { return s.DeleteTenant(s.ctx, root, "guest", control.Match{}) }),
		"SuspendTenant": simply(func(s *scene) error { return result(s.SuspendTenant(s.ctx, root, "acme", "")) }),
		"ResumeTenant":  suspended(func(s *scene) error { return result(s.ResumeTenant(s.ctx, root, "acme")) }),
		"Freeze":        simply(func(s *scene) error { return result(s.Freeze(s.ctx, root, "")) }),
		"Unfreeze":      suspended(func(s *scene) error { return result(s.Unfreeze(s.ctx, root)) }),
		"PutMember": simply(func(s *scene) error {
			return s.PutMember(s.ctx, root, "acme", fleet.Member{Kind: fleet.MemberPerson, Subject: "bob", Role: fleet.RoleAdmin})
		}),
		"CreateAccessRule": simply(func(s *scene) error { return s.accessRule("new") }),
		"UpdateAccessRule": {
			prepare: func(s *scene) error { return s.accessRule("rule") },
			do: func(s *scene) error {
				return result(s.UpdateAccessRule(s.ctx, root, "acme", "rule", control.UpdateAccessRule{ReadOnly: new(true)}, control.Match{}))
			},
		},
		"DeleteAccessRule": {
			prepare: func(s *scene) error { return s.accessRule("rule") },
			do:      func(s *scene) error { return s.DeleteAccessRule(s.ctx, root, "acme", "rule", control.Match{}) },
		},
		"RemoveMember": simply(func(s *scene) error { return s.RemoveMember(s.ctx, root, "acme", fleet.MemberGroup, "dev") }),
		"CreateAPIToken": simply(func(s *scene) error {
			return result2(s.CreateAPIToken(s.ctx, root, "", control.CreateAPIToken{Name: "new"}))
		}),
		"RevokeAPIToken": simply(func(s *scene) error { return s.RevokeAPIToken(s.ctx, root, "acme", s.api.ID) }),
		"EndSession":     simply(func(s *scene) error { return s.EndSession(s.ctx, s.session) }),
		"EndSessions":    simply(func(s *scene) error { return s.EndSessions(s.ctx, root, "alice") }),
		"ForgetPerson":   simply(func(s *scene) error { return s.ForgetPerson(s.ctx, root, "alice") }),
		"EnrollAgent": simply(func(s *scene) error {
			return result(s.EnrollAgent(s.ctx, root, "acme", control.EnrollAgent{Name: "rome"}))
		}),
		"UpdateAgent": simply(func(s *scene) error {
			return result(s.UpdateAgent(s.ctx, root, "acme", "paris", control.UpdateAgent{Labels: &map[string]string{"a": "b"}}, control.Match{}))
		}),
		"DeleteAgent":      simply(func(s *scene) error { return s.DeleteAgent(s.ctx, root, "acme", "paris", control.Match{}) }),
		"CreateAgentToken": simply(func(s *scene) error { return result2(s.CreateAgentToken(s.ctx, root, "acme", "paris", "")) }),
		"RevokeAgentToken": simply(func(s *scene) error { return s.RevokeAgentToken(s.ctx, root, "acme", "paris", s.token.ID) }),
		"RotateAgentToken": simply(func(s *scene) error { return result(s.RotateAgentToken(s.ctx, root, "acme", "paris")) }),
		"CreateEnvironment": simply(func(s *scene) error {
			return result(s.CreateEnvironment(s.ctx, root, "acme", control.CreateEnvironment{Name: "new", Agents: []string{"paris"}}))
		}),
		"UpdateEnvironment": simply(func(s *scene) error {
			return result(s.UpdateEnvironment(s.ctx, root, "acme", "prod", control.UpdateEnvironment{MatchLabels: &map[string]string{"a": "b"}}, control.Match{}))
		}),
		"SuspendEnvironment": simply(func(s *scene) error { return result(s.SuspendEnvironment(s.ctx, root, "acme", "prod", "")) }),
		"ResumeEnvironment":  suspended(func(s *scene) error { return result(s.ResumeEnvironment(s.ctx, root, "acme", "prod")) }),
		"DeleteEnvironment":  simply(func(s *scene) error { return s.DeleteEnvironment(s.ctx, root, "acme", "prod", control.Match{}) }),
		"CreateGrant": simply(func(s *scene) error {
			return result(s.CreateGrant(s.ctx, root, "acme", control.CreateGrant{Environment: "prod", Grantee: "guest"}))
		}),
		"UpdateGrant": simply(func(s *scene) error {
			return result(s.UpdateGrant(s.ctx, root, "acme", s.grant.ID, control.UpdateGrant{Limits: fleet.Limits{Kinds: []string{"Secret"}}}, control.Match{}))
		}),
		"DeleteGrant": simply(func(s *scene) error { return s.DeleteGrant(s.ctx, root, "acme", s.grant.ID, control.Match{}) }),
	}
}

// deploymentWrites are the use-cases of deployments, repositories and credentials.
func deploymentWrites(t failer) map[string]write {
	suspended := func(do func(s *scene) error) write { return write{(*scene).suspendAll, do} }
	credential := func(s *scene) error {
		return result(s.CreateCredential(s.ctx, root, "acme", control.CreateCredential{Name: "git", Kind: fleet.CredentialHTTPS, Username: "u", Secret: "s"}))
	}
	repository := func(s *scene) error {
		return result(s.CreateRepository(s.ctx, root, "acme", control.CreateRepository{URL: "https://git.example.com/new.git"}))
	}
	added := func(s *scene) fleet.RepositoryID {
		repos, _ := s.Repositories(s.ctx, root, "acme", store.RepositoryFilter{})
		for _, r := range repos {
			if strings.HasSuffix(r.URL, "/new.git") {
				return r.ID
			}
		}
		return ""
	}
	rolledBack := func(s *scene) error {
		return result(s.Rollback(s.ctx, root, "acme", "web", control.Rollback{Revision: 1}))
	}
	name, word := "git", "changed"
	applied := func(s *scene) error {
		_, _, err := s.ApplyCredential(s.ctx, root, "acme", control.CreateCredential{Name: "applied", Kind: fleet.CredentialHTTPS, Username: "u", Secret: "p"}, "https://git.example.com/private.git")
		return err
	}
	return map[string]write{
		"CreateRepository": simply(repository),
		"UpdateRepository": {credential, func(s *scene) error {
			return result(s.UpdateRepository(s.ctx, root, "acme", s.repo, control.UpdateRepository{Credential: &name}, control.Match{}))
		}},
		"DeleteRepository":  {repository, func(s *scene) error { return s.DeleteRepository(s.ctx, root, "acme", added(s), control.Match{}) }},
		"RefreshRepository": simply(func(s *scene) error { return s.RefreshRepository(s.ctx, root, "acme", s.repo) }),
		"CreateCredential":  simply(credential),
		"UpdateCredential": {credential, func(s *scene) error {
			return result(s.UpdateCredential(s.ctx, root, "acme", "git", control.UpdateCredential{Secret: &word}, control.Match{}))
		}},
		"DeleteCredential": {credential, func(s *scene) error { return s.DeleteCredential(s.ctx, root, "acme", "git", control.Match{}) }},
		"CreateDeployment": simply(func(s *scene) error {
			return result(s.CreateDeployment(s.ctx, root, "acme", control.CreateDeployment{Name: "new", Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"}}))
		}),
		"UpdateDeployment": simply(func(s *scene) error {
			return result(s.UpdateDeployment(s.ctx, root, "acme", "web", control.UpdateDeployment{Namespace: &word}, control.Match{}))
		}),
		"SuspendDeployment": simply(func(s *scene) error { return result(s.SuspendDeployment(s.ctx, root, "acme", "web", "")) }),
		"ResumeDeployment":  suspended(func(s *scene) error { return result(s.ResumeDeployment(s.ctx, root, "acme", "web")) }),
		"DeleteDeploymentKeepObjects": simply(func(s *scene) error {
			return result(s.DeleteDeploymentKeepObjects(s.ctx, root, "acme", "web", control.Match{}))
		}),
		"DeleteDeploymentHoldProtected": simply(func(s *scene) error {
			return result(s.DeleteDeploymentHoldProtected(s.ctx, root, "acme", "web", control.Match{}))
		}),
		"ReleaseProtected": {
			func(s *scene) error {
				request := control.CreateDeployment{Name: "owned", Source: fleet.Source{RepoURL: "https://git.example.com/apps.git", Path: "owned"}}
				if err := s.ApplyDeployment(s.ctx, s.resource(), "acme", request); err != nil {
					return err
				}
				s.render(t, "acme", "owned", "1")
				return result(s.DeleteDeploymentHoldProtected(s.ctx, s.resource(), "acme", "owned", control.Match{}))
			},
			func(s *scene) error { return s.ReleaseProtected(s.ctx, s.resource(), "acme") },
		},
		"DeleteDeployment": simply(func(s *scene) error { return result(s.DeleteDeployment(s.ctx, root, "acme", "web", control.Match{})) }),
		"Rollback":         simply(rolledBack),
		"ReleaseDeployment": {
			func(s *scene) error {
				return errors.Join(result(s.TerminateRun(s.ctx, root, "acme", s.run.ID, control.Match{})), rolledBack(s))
			},
			func(s *scene) error { return result(s.ReleaseDeployment(s.ctx, root, "acme", "web")) },
		},
		"DismissTarget": {
			func(s *scene) error { return s.DeleteAgent(s.ctx, root, "acme", "paris", control.Match{}) },
			func(s *scene) error {
				view, err := s.Deployment(s.ctx, root, "acme", "web")
				if err != nil || len(view.Targets) != 1 {
					return errors.Join(err, errors.New("no target to dismiss"))
				}
				return s.DismissTarget(s.ctx, root, "acme", "web", view.Targets[0].ID)
			},
		},
		"DismissTargets": {
			func(s *scene) error { return s.DeleteAgent(s.ctx, root, "acme", "paris", control.Match{}) },
			func(s *scene) error { return result(s.DismissTargets(s.ctx, root, "acme", "", "paris")) },
		},
		"ConfirmPrune": {
			func(s *scene) error {
				s.holdBack(t, "acme", s.agent, "a")
				return nil
			},
			func(s *scene) error {
				return result(s.ConfirmPrune(s.ctx, root, "acme", "web", control.ConfirmPrune{Objects: []string{heldA}}))
			},
		},
		"DeleteAgentObjects": {
			func(s *scene) error {
				s.connect(t, s.agent, "cluster-1")
				return nil
			},
			func(s *scene) error { return result(s.DeleteAgentObjects(s.ctx, root, "acme", s.agent.Name, 0)) },
		},
		"ApplyDeployment": simply(func(s *scene) error {
			return s.ApplyDeployment(s.ctx, root, "acme", control.CreateDeployment{Name: "applied", Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"}})
		}),
		"ApplyCredential":       simply(applied),
		"DeleteOwnedCredential": {applied, func(s *scene) error { return s.DeleteOwnedCredential(s.ctx, root, "acme", "applied") }},
		"NamespaceTenant": simply(func(s *scene) error {
			return result(s.NamespaceTenant(s.ctx, root, fleet.Owner{Kind: "Namespace", Name: "team", UID: "uid-team"}))
		}),
		"LocalEnvironment": {
			func(s *scene) error {
				s.connect(t, s.agent, "cluster-1")
				return nil
			},
			func(s *scene) error { return result(s.LocalEnvironment(s.ctx, root, "acme", "cluster-1")) },
		},
		"CreateRun": simply(func(s *scene) error { return result(s.CreateRun(s.ctx, root, "acme", "web", control.CreateRun{})) }),
		"UpdateRun": simply(func(s *scene) error {
			return result(s.UpdateRun(s.ctx, root, "acme", s.run.ID, control.UpdateRun{Revision: "v1"}, control.Match{}))
		}),
		"TerminateRun": simply(func(s *scene) error { return result(s.TerminateRun(s.ctx, root, "acme", s.run.ID, control.Match{})) }),
	}
}

// Every use case is either in the list of reads or tested here for its audit record: a new one that is in
// neither fails the test.
func TestEveryWriteIsAudited(t *testing.T) {
	t.Parallel()
	writes := tenancyWrites()
	for name, w := range deploymentWrites(t) {
		writes[name] = w
	}
	for name, w := range upgradeWrites(t) {
		writes[name] = w
	}
	for _, m := range useCases() {
		w, known := writes[m.Name]
		if known == slices.Contains(reads, m.Name) {
			t.Errorf("%s: say whether it reads or writes (and how), exactly once", m.Name)
		}
		delete(writes, m.Name)
		if !known {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			if w.prepare != nil {
				ok(t, w.prepare(s))
			}
			before, err := s.Audit(s.ctx, root, "", store.AuditFilter{Limit: 1})
			ok(t, err)
			ok(t, w.do(s))
			after, err := s.Audit(s.ctx, root, "", store.AuditFilter{Limit: 1})
			ok(t, err)
			e := after[0]
			if e.Seq <= before[0].Seq {
				t.Fatalf("it left no line; the last one is %+v", e)
			}
			if e.At.IsZero() || e.Actor == "" || !strings.Contains(e.Action, ".") || e.Kind == "" {
				t.Errorf("the line says too little: %+v", e)
			}
			if e.Actor == root.Name && (e.Component != root.Component || e.Request != root.Request || e.Address != root.Address) {
				t.Errorf("the line does not say how %s came in: %+v", e.Actor, e)
			}
		})
	}
	for name := range writes {
		t.Errorf("there is no use-case %s", name)
	}
}

func TestWhatDidNotHappenIsNotAudited(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	before, err := s.Audit(s.ctx, root, "", store.AuditFilter{Limit: 1})
	ok(t, err)
	for _, err := range []error{
		result(s.CreateTenant(s.ctx, root, control.CreateTenant{Name: "acme"})),
		result(s.EnrollAgent(s.ctx, root, "acme", control.EnrollAgent{Name: "paris"})),
		s.DeleteTenant(s.ctx, root, "acme", control.Match{}),
	} {
		if err == nil {
			t.Error("it happened")
		}
	}
	after, err := s.Audit(s.ctx, root, "", store.AuditFilter{Limit: 1})
	ok(t, err)
	if after[0].Seq != before[0].Seq {
		t.Errorf("got %+v", after[0])
	}
}

func TestAuditLogIsReadByThoseWhoMay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	acme, err := s.Tenant(s.ctx, root, "acme")
	ok(t, err)
	log, err := s.Audit(s.ctx, member(acme, fleet.RoleViewer), "acme", store.AuditFilter{Action: "agent.create"})
	ok(t, err)
	if len(log) != 1 || log[0].Name != "paris" {
		t.Errorf("got %+v", log)
	}
	if _, err := s.Audit(s.ctx, member(acme, fleet.RoleAdmin), "", store.AuditFilter{}); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("the log of the fleet: %v", err)
	}
	if _, err := s.Audit(s.ctx, member(acme, fleet.RoleAdmin), "guest", store.AuditFilter{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the log of another tenant: %v", err)
	}
}
