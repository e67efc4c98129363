package restapi_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// standin is a control where everything exists once. It counts what it is asked for.
type standin struct {
	mu      sync.Mutex
	calls   []string
	replies map[string]store.Reply
}

func newStandin() *standin { return &standin{replies: map[string]store.Reply{}} }

func (s *standin) called(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
}

// count is how often a use-case was called.
func (s *standin) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c == name {
			n++
		}
	}
	return n
}

var held = fleet.Suspension{At: later, By: "anna", Reason: "holidays"}

func aTenant() fleet.Tenant {
	return fleet.Tenant{ID: "ten-1", Name: "default", Quota: fleet.Quota{Agents: 3}, Suspension: held, CreatedAt: born}
}

func anEnvironment() control.EnvironmentView {
	return control.EnvironmentView{
		Environment: fleet.Environment{
			ID: "env-1", Name: "eu", Agents: []string{"prod"}, MatchLabels: map[string]string{"region": "eu"},
			Suspension: held, Spec: 4, CreatedAt: born,
		},
		Agents: []string{"lost", "prod"}, Deployments: 2,
	}
}

func aRepository() control.RepositoryView {
	return control.RepositoryView{
		Repository: fleet.Repository{ID: "rep-1", URL: "https://git.example.com/web", Spec: 2, CreatedAt: born, CheckedAt: later, Error: "no route"},
		Credential: "robot", Deployments: 1,
	}
}

func aCredential() fleet.Credential {
	return fleet.Credential{
		ID: "crd-1", Name: "robot", Kind: fleet.CredentialHTTPS, Username: "robot", Spec: 7, CreatedAt: born, UpdatedAt: later,
		Sealed: fleet.Sealed{KeyID: "k", Key: []byte("key"), Data: []byte("data")},
	}
}

func aRun() fleet.SyncRun {
	return fleet.SyncRun{
		ID: "run-1", Deployment: "web", Seq: 3, Kind: fleet.RunSync, Revision: "main", Phase: fleet.RunRunning, Message: "1 of 2",
		Commit: "c0ffee", By: "anna", CreatedAt: born, StartedAt: later, OperationID: "opn-1",
	}
}

func anOperation() fleet.Operation {
	return fleet.Operation{
		ID: "opn-1", Action: "deployment.delete", Kind: "deployment", Name: "web", ResourceID: "dep-1",
		State: fleet.OperationInProgress, Message: "1 of 2", By: "anna", CreatedAt: born, UpdatedAt: later,
	}
}

func aToken() fleet.APIToken {
	return fleet.APIToken{ID: "tok-1", Name: "ci", Role: fleet.RoleDeployer, CreatedAt: born, CreatedBy: "anna", ExpiresAt: later, Hash: []byte("hash")}
}

func anAgentToken() fleet.AgentToken {
	return fleet.AgentToken{ID: "tok-2", CreatedAt: born, CreatedBy: "anna", LastUsed: later, Hash: []byte("hash")}
}

func aGrant() fleet.Grant {
	return fleet.Grant{
		ID: "grt-1", Environment: "eu", OwnerName: "default", GranteeName: "shop", Limits: fleet.Limits{Namespaces: []string{"shop"}}, CreatedAt: born,
	}
}

func anApplication() control.Application {
	v := deploymentView()
	t := v.Targets[1].Target
	t.DeploymentName, t.Desired.Digest, t.Desired.Namespace = "web", "sha256:abc", "web"
	return control.Application{
		AgentTarget: control.AgentTarget{Target: t, Tenant: "default"}, Source: v.Source, Environment: "default",
	}
}

func (s *standin) Authenticate(_ context.Context, given string) (auth.Principal, error) {
	switch given {
	case token:
		return auth.Principal{Name: "admin", TokenID: "tok-admin", FleetAdmin: true}, nil
	case otherToken:
		return auth.Principal{Name: "other", TokenID: "tok-other", Roles: map[fleet.TenantID]fleet.Role{"ten-1": fleet.RoleViewer}}, nil
	}
	return auth.Principal{}, auth.ErrUnauthenticated
}

func (s *standin) AuthenticateAgent(_ context.Context, given string) (fleet.Agent, fleet.Tenant, error) {
	if given != agentToken {
		return fleet.Agent{}, fleet.Tenant{}, auth.ErrUnauthenticated
	}
	return agentView().Agent, aTenant(), nil
}

func (s *standin) Tenants(context.Context, auth.Principal, store.Page) ([]fleet.Tenant, error) {
	s.called("Tenants")
	return []fleet.Tenant{aTenant()}, nil
}

func (s *standin) Tenant(context.Context, auth.Principal, string) (fleet.Tenant, error) {
	s.called("Tenant")
	return aTenant(), nil
}

func (s *standin) CreateTenant(context.Context, auth.Principal, control.CreateTenant) (fleet.Tenant, error) {
	s.called("CreateTenant")
	return aTenant(), nil
}

func (s *standin) UpdateTenant(_ context.Context, _ auth.Principal, _ string, _ control.UpdateTenant, match control.Match) (fleet.Tenant, error) {
	s.called("UpdateTenant")
	return aTenant(), staleState(match, control.TenantState(aTenant()))
}

func (s *standin) DeleteTenant(_ context.Context, _ auth.Principal, _ string, match control.Match) error {
	s.called("DeleteTenant")
	return staleState(match, control.TenantState(aTenant()))
}

func (s *standin) SuspendTenant(context.Context, auth.Principal, string, string) (fleet.Tenant, error) {
	s.called("SuspendTenant")
	return aTenant(), nil
}

func (s *standin) ResumeTenant(context.Context, auth.Principal, string) (fleet.Tenant, error) {
	s.called("ResumeTenant")
	return aTenant(), nil
}

func (s *standin) Fleet(context.Context, auth.Principal) (control.FleetView, error) {
	s.called("Fleet")
	return control.FleetView{Settings: fleet.Settings{Epoch: 2, Suspension: held}, Agents: 3, Connected: 2, Deployments: 5, Targets: 9}, nil
}

func (s *standin) Freeze(_ context.Context, _ auth.Principal, reason string) (fleet.Settings, error) {
	s.called("Freeze " + reason)
	return fleet.Settings{Epoch: 2, Suspension: held}, nil
}

func (s *standin) Unfreeze(context.Context, auth.Principal) (fleet.Settings, error) {
	s.called("Unfreeze")
	return fleet.Settings{Epoch: 2}, nil
}

// pageOf is the page of a listing that begins behind the item with the key of the page.
func pageOf[T any](all []T, page store.Page, key func(T) string) []T {
	if page.After != "" {
		at := strings.TrimSuffix(page.After+"/"+page.AfterID, "/")
		all = all[1+slices.IndexFunc(all, func(item T) bool { return key(item) == at }):]
	}
	return all[:min(len(all), page.Limit)]
}

func (s *standin) Members(_ context.Context, _ auth.Principal, _ string, page store.Page) ([]fleet.Member, error) {
	s.called("Members")
	return pageOf([]fleet.Member{
		{Kind: fleet.MemberGroup, Subject: "devs", Role: fleet.RoleViewer},
		{Kind: fleet.MemberPerson, Subject: "anna", Role: fleet.RoleAdmin, CreatedAt: born},
		{Kind: fleet.MemberPerson, Subject: "bert", Role: fleet.RoleDeployer},
	}, page, func(m fleet.Member) string { return string(m.Kind) + "/" + m.Subject }), nil
}

func (s *standin) PutMember(context.Context, auth.Principal, string, fleet.Member) error {
	s.called("PutMember")
	return nil
}

func (s *standin) RemoveMember(_ context.Context, _ auth.Principal, _ string, kind fleet.MemberKind, subject string) error {
	s.called("RemoveMember " + string(kind) + " " + subject)
	return nil
}

func (s *standin) APITokens(context.Context, auth.Principal, string, store.Page) ([]fleet.APIToken, error) {
	s.called("APITokens")
	return []fleet.APIToken{aToken()}, nil
}

func (s *standin) CreateAPIToken(_ context.Context, _ auth.Principal, _ string, req control.CreateAPIToken) (fleet.APIToken, string, error) {
	s.called("CreateAPIToken " + req.ExpiresIn.String())
	return aToken(), "kedge-api-fresh", nil
}

func (s *standin) RevokeAPIToken(context.Context, auth.Principal, string, fleet.TokenID) error {
	s.called("RevokeAPIToken")
	return nil
}

func aPerson() fleet.Person {
	return fleet.Person{Name: "jane@example.com", Issuer: "https://id.example.com", Subject: "1", DisplayName: "Jane", Sessions: 1, CreatedAt: born, LoggedInAt: later}
}

func (s *standin) People(context.Context, auth.Principal, store.Page) ([]fleet.Person, error) {
	s.called("People")
	return []fleet.Person{aPerson()}, nil
}

func (s *standin) Person(context.Context, auth.Principal, string) (fleet.Person, error) {
	s.called("Person")
	return aPerson(), nil
}

func (s *standin) EndSessions(context.Context, auth.Principal, string) error {
	s.called("EndSessions")
	return nil
}

func (s *standin) ForgetPerson(context.Context, auth.Principal, string) error {
	s.called("ForgetPerson")
	return nil
}

func (s *standin) AgentTokens(context.Context, auth.Principal, string, string, store.Page) ([]fleet.AgentToken, error) {
	s.called("AgentTokens")
	return []fleet.AgentToken{anAgentToken()}, nil
}

func (s *standin) CreateAgentToken(context.Context, auth.Principal, string, string, string) (fleet.AgentToken, string, error) {
	s.called("CreateAgentToken")
	return anAgentToken(), "kedge-agent-fresh", nil
}

func (s *standin) RevokeAgentToken(context.Context, auth.Principal, string, string, fleet.TokenID) error {
	s.called("RevokeAgentToken")
	return nil
}

func (s *standin) RotateAgentToken(context.Context, auth.Principal, string, string) (fleet.Operation, error) {
	s.called("RotateAgentToken")
	return anOperation(), nil
}

func (s *standin) Grants(_ context.Context, _ auth.Principal, _ string, page store.Page) ([]control.GrantView, error) {
	s.called("Grants")
	all := []control.GrantView{{Grant: aGrant()}, {Grant: aGrant(), Received: true}}
	return pageOf(all, page, func(g control.GrantView) string {
		if g.Received {
			return "received/" + g.Environment + "/" + g.OwnerName
		}
		return "given/" + g.Environment + "/" + g.GranteeName
	}), nil
}

func (s *standin) Grant(context.Context, auth.Principal, string, fleet.GrantID) (control.GrantView, error) {
	s.called("Grant")
	return control.GrantView{Grant: aGrant()}, nil
}

func (s *standin) CreateGrant(context.Context, auth.Principal, string, control.CreateGrant) (fleet.Grant, error) {
	s.called("CreateGrant")
	return aGrant(), nil
}

func (s *standin) UpdateGrant(_ context.Context, _ auth.Principal, _ string, _ fleet.GrantID, _ control.UpdateGrant, match control.Match) (fleet.Grant, error) {
	s.called("UpdateGrant")
	return aGrant(), staleState(match, control.GrantState(aGrant()))
}

func (s *standin) DeleteGrant(_ context.Context, _ auth.Principal, _ string, _ fleet.GrantID, match control.Match) error {
	s.called("DeleteGrant")
	return staleState(match, control.GrantState(aGrant()))
}

func (s *standin) ClaimReply(_ context.Context, p auth.Principal, r store.Reply) (store.Reply, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := string(p.TokenID) + " " + r.Key
	if kept, ok := s.replies[id]; ok {
		return kept, false, nil
	}
	r.At = time.Now()
	s.replies[id] = r
	return store.Reply{}, true, nil
}

func (s *standin) CompleteReply(_ context.Context, p auth.Principal, r store.Reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := string(p.TokenID) + " " + r.Key
	was := s.replies[id]
	r.Request, r.At, r.Body = was.Request, was.At, slices.Clone(r.Body)
	s.replies[id] = r
	return nil
}

func (s *standin) ReleaseReply(_ context.Context, p auth.Principal, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.replies, string(p.TokenID)+" "+key)
	return nil
}
