package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// adminRoutes adds the routes besides agents and deployments.
func (s *server) adminRoutes(mux *http.ServeMux) {
	const top, tenant = "/api/v1/", "/api/v1/tenants/default/"
	frozen := &apiv1.Suspension{At: born, By: "ann", Reason: "the freeze of december"}
	expiry := born.Add(90 * 24 * time.Hour)
	list := func(path string, v any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { write(w, 200, v) })
	}
	list(top+"tenants", apiv1.List[apiv1.Tenant]{Items: []apiv1.Tenant{
		{ID: "ten-1", Name: "default", CreatedAt: born}, {ID: "ten-2", Name: "shop", Quota: apiv1.Quota{Agents: 3, Targets: 100}, Suspension: frozen, CreatedAt: born},
	}})
	list(top+"tenants/shop", apiv1.Tenant{ID: "ten-2", Name: "shop", Quota: apiv1.Quota{Agents: 3, Targets: 100}, CreatedAt: born})
	list(top+"tenants/shop/agents", apiv1.List[apiv1.Agent]{Items: []apiv1.Agent{{Name: "till", Scope: "cluster", CreatedAt: born}}})
	list(top+"tenants/shop/environments", apiv1.List[apiv1.Environment]{Items: []apiv1.Environment{{Name: "default", CreatedAt: born}}})
	list(tenant+"gitlab-projects", apiv1.List[apiv1.GitLabProject]{Items: []apiv1.GitLabProject{{Project: "42", RepoURL: "https://git.example.com/app"}}})
	list(tenant+"environments/default", apiv1.Environment{Name: "default", CreatedAt: born})
	list(tenant+"repositories/rep-1", apiv1.Repository{ID: "rep-1", URL: "https://git.example.com/web"})
	list(tenant+"repositories/rep-2", apiv1.Repository{ID: "rep-2", URL: "https://git.example.com/nope"})
	list(tenant+"repositories/rep-3", apiv1.Repository{ID: "rep-3", URL: "https://git.example.com/new"})
	list(tenant+"grants/grt-1", apiv1.Grant{ID: "grt-1", Environment: "eu", Grantee: "shop", Direction: "given", Limits: apiv1.Limits{Namespaces: []string{"shop"}, Kinds: []string{"ConfigMap", "Deployment.apps"}}})
	list(tenant+"agents/lost", agents()[0])
	list(tenant+"agents/new", agents()[1])
	for _, kind := range []string{"agents", "environments", "credentials", "access-rules"} {
		mux.HandleFunc("GET "+tenant+kind+"/{name}", func(w http.ResponseWriter, r *http.Request) {
			write(w, 404, apiv1.Problem{Status: 404, Detail: fmt.Sprintf("%s %q was not found", kind, r.PathValue("name"))})
		})
	}
	list(tenant+"members", apiv1.List[apiv1.Member]{Items: []apiv1.Member{{Kind: "group", Subject: "web team", Role: "deployer", CreatedAt: born}}})
	ada := apiv1.Person{Name: "ada@example.com", DisplayName: "Ada Lovelace", Issuer: "https://id.example.com", Subject: "8f3a", Sessions: 2, CreatedAt: born, LoggedInAt: now}
	list(top+"people", apiv1.List[apiv1.Person]{Items: []apiv1.Person{ada, {Name: "bob@example.com", Issuer: "https://id.example.com", Subject: "77c1", CreatedAt: born, LoggedInAt: born}}})
	list(top+"people/ada@example.com", ada)
	tokens := apiv1.List[apiv1.APIToken]{Items: []apiv1.APIToken{
		{ID: "tok-1", Name: "ci", Role: "deployer", Valid: true, CreatedAt: born, CreatedBy: "ann", ExpiresAt: expiry},
		{ID: "tok-2", Name: "old", Role: "viewer", CreatedAt: born, RevokedAt: now},
		{ID: "tok-3", Name: "brief", Role: "admin", CreatedAt: born, ExpiresAt: born},
	}}
	list(tenant+"tokens", tokens)
	list(top+"tokens", apiv1.List[apiv1.APIToken]{Items: []apiv1.APIToken{{ID: "tok-9", Name: "ops", Role: "fleet-admin", Valid: true, CreatedAt: born}}})
	list(tenant+"agents/prod", agents()[2])
	list(tenant+"agents/prod/tokens", apiv1.List[apiv1.AgentToken]{Items: []apiv1.AgentToken{
		{ID: "tok-4", CreatedAt: born, CreatedBy: "ann", RevokedAt: now}, {ID: "tok-5", Valid: true, CreatedAt: now, CreatedBy: "rotation op-1", LastUsedAt: now},
	}})
	list(tenant+"environments/eu", apiv1.Environment{Name: "eu", Agents: []string{"prod"}, MatchLabels: map[string]string{"region": "eu", "a": "b"}, Selected: []string{"prod"}, Deployments: 2, Suspension: frozen, CreatedAt: born})
	list(tenant+"deployments/{name}/held-prunes", apiv1.List[apiv1.HeldPrune]{Items: []apiv1.HeldPrune{
		{Target: "tgt-1", Agent: "prod", Object: "ConfigMap dude/old", Reason: "OverPruneLimit", Message: "12 of 20 objects would be deleted", Commit: "c0ffee0123456789", Current: true},
		{Target: "tgt-1", Agent: "prod", Object: "Namespace old", Reason: "ProtectedKind", Message: "of a protected kind", Commit: "c0ffee0123456789", Current: true, Confirmed: true},
		{Target: "tgt-2", Agent: "lost", Object: "ConfigMap dude/old", Commit: "c0ffee0123456789"},
	}})
	list(tenant+"grants", apiv1.List[apiv1.Grant]{Items: []apiv1.Grant{
		{ID: "grt-1", Environment: "eu", Grantee: "shop", Direction: "given", Limits: apiv1.Limits{Namespaces: []string{"shop"}, Kinds: []string{"ConfigMap", "Deployment.apps"}}, CreatedAt: born},
		{ID: "grt-2", Environment: "ops/edge", Grantee: "default", Direction: "received", ServiceAccount: "edge/guest", CreatedAt: born},
	}})
	rule := apiv1.AccessRule{ID: "acr-1", Name: "oncall", Agents: []string{"prod"}, Environments: []string{"eu"}, ReadOnly: true, CreatedAt: born,
		Subjects: []apiv1.AccessSubject{{Kind: "group", Name: "oncall"}, {Kind: "person", Name: "ada@example.com"}}}
	list(tenant+"access-rules", apiv1.List[apiv1.AccessRule]{Items: []apiv1.AccessRule{rule}})
	list(tenant+"access-rules/oncall", rule)
	list(tenant+"credentials", apiv1.List[apiv1.Credential]{Items: []apiv1.Credential{{ID: "crd-1", Name: "git", Kind: "https", Username: "robot", CreatedAt: born, UpdatedAt: now}}})
	list(tenant+"credentials/git", apiv1.Credential{ID: "crd-1", Name: "git", Kind: "https", Username: "robot", CreatedAt: born, UpdatedAt: now})
	list(tenant+"credentials/key", apiv1.Credential{ID: "crd-2", Name: "key", Kind: "ssh", CreatedAt: born, UpdatedAt: now})
	list(top+"fleet", apiv1.Fleet{Epoch: 1, Suspension: frozen, Agents: 3, Connected: 2, Deployments: 5, Targets: 9})
	list(tenant+"deployments/web/revisions", apiv1.List[apiv1.Revision]{Items: []apiv1.Revision{
		{Seq: 3, Commit: "c0ffee0123456789", Author: "Ann Lee", Message: "Add a page", RenderedAt: now, Digests: []string{"sha256:3"}}, {Seq: 2, Commit: "beef0123456789", RenderedAt: born, Digests: []string{"sha256:2"}},
	}})
	list(tenant+"deployments/nowhere/revisions", apiv1.List[apiv1.Revision]{Items: []apiv1.Revision{{Seq: 1, Commit: "c0ffee0123456789", RenderedAt: born}}})
	list(tenant+"deployments/web/runs", apiv1.List[apiv1.SyncRun]{Items: []apiv1.SyncRun{run2(), run1()}})
	list(tenant+"runs/run-2", run2())
	list(tenant+"operations", apiv1.List[apiv1.Operation]{Items: []apiv1.Operation{
		{ID: "op-2", Action: "deployment.delete", Kind: "deployment", Name: "web", State: "Waiting", By: "ann", CreatedAt: born},
		{ID: "op-1", Action: "agent.rotate-token", Kind: "agent", Name: "prod", State: "Failed", Message: "its Secret is read-only", By: "ci", CreatedAt: born},
	}})
	operation := func(id, state, message string) {
		list(tenant+"operations/"+id, apiv1.Operation{ID: id, Action: "deployment.sync", Kind: "deployment", Name: "web", State: state, Message: message, CreatedAt: born})
	}
	list(tenant+"runs/run-2/waiting", apiv1.RunWaiting{For: []apiv1.RunWait{{Reason: "AgentDisconnected", Agent: "lost", Message: "not connected since 2026-11-15T12:00:00Z"}}, More: 2})
	operation("op-2", "Completed", "")
	operation("op-1", "Failed", "there is no branch nowhere")
	operation("op-3", "Waiting", "")
	mux.HandleFunc("GET "+tenant+"audit", s.audit("web"))
	mux.HandleFunc("GET "+top+"audit", s.audit("default"))
	s.verbs(mux, tenant, top)
}

// audit lists two events, of which a page holds as many as were asked for.
func (s *server) audit(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		items := []apiv1.AuditEvent{
			{Seq: 8, At: now, Actor: "ann", Component: "rest", Action: "deployment.create", Kind: "deployment", Name: name, Address: "192.0.2.1:5", Detail: r.URL.Query().Get("actor")},
			{Seq: 7, At: born, Actor: "system", Action: "agent.create", Kind: "agent", Name: "prod"},
		}
		if r.URL.Query().Get("limit") == "1" {
			items = items[:1]
		}
		write(w, 200, apiv1.List[apiv1.AuditEvent]{Items: items})
	}
}

func run1() apiv1.SyncRun {
	return apiv1.SyncRun{
		ID: "run-1", Deployment: "web", Seq: 1, Kind: "sync", Revision: "v1.4", Phase: "Failed", Message: "there is no tag v1.4", By: "ci", Operation: "op-1",
		CreatedAt: born, StartedAt: born, FinishedAt: born.Add(1500 * time.Millisecond),
	}
}

func run2() apiv1.SyncRun {
	return apiv1.SyncRun{
		ID: "run-2", Deployment: "web", Seq: 2, Kind: "rollback", Kept: 2, Commit: "beef0123456789", Phase: "Succeeded", By: "ann", Operation: "op-2",
		CreatedAt: born, StartedAt: born, FinishedAt: now,
	}
}

// verbs answers what changes something.
func (s *server) verbs(mux *http.ServeMux, tenant, top string) {
	done := func(pattern string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	}
	for _, pattern := range []string{
		"DELETE " + top + "tenants/{name}", "PUT " + tenant + "members/{kind}/{subject}", "DELETE " + tenant + "members/{kind}/{subject}",
		"DELETE " + top + "people/{name}", "DELETE " + top + "people/{name}/sessions",
		"DELETE " + tenant + "tokens/{id}", "DELETE " + top + "tokens/{id}", "DELETE " + tenant + "agents/{name}/tokens/{id}",
		"DELETE " + tenant + "environments/{name}", "DELETE " + tenant + "grants/{id}", "DELETE " + tenant + "credentials/{name}",
		"DELETE " + tenant + "repositories/{id}", "POST " + tenant + "repositories/{id}/refresh", "POST " + tenant + "deployments/{name}/targets/{id}/dismiss",
	} {
		done(pattern)
	}
	answer := func(pattern string, v any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { write(w, 200, v) })
	}
	mux.HandleFunc("POST "+tenant+"detached-targets/dismiss", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(s.got[r.Method+" "+r.URL.Path], "nobody") {
			write(w, 404, apiv1.Problem{Status: 404, Detail: `target "nobody" in tenant "default" was not found`})
			return
		}
		write(w, 200, apiv1.DismissedTargets{Dismissed: 2, Kept: 1})
	})
	answer("GET "+tenant+"detached-targets", apiv1.List[apiv1.DetachedTarget]{Items: []apiv1.DetachedTarget{
		{Target: "tgt-1", Deployment: "web", Agent: "prod-1", DetachedAt: born, Reason: `agent "prod-1" was deleted`},
		{Target: "tgt-2", Deployment: "web", Agent: "prod-2", DetachedAt: born, Reason: `agent "prod-2" left environment "eu"`, Managed: true},
	}})
	for _, pattern := range []string{
		"POST " + top + "tenants", "PATCH " + top + "tenants/{name}", "POST " + top + "tenants/{name}/{verb}", "PATCH " + tenant + "agents/{name}",
		"POST " + tenant + "environments/{name}/{verb}", "POST " + tenant + "credentials", "PATCH " + tenant + "credentials/{name}",
		"PATCH " + tenant + "repositories/{id}", "PATCH " + tenant + "deployments/{name}",
		"POST " + tenant + "deployments/{name}/{verb}", "POST " + top + "fleet/{verb}",
	} {
		answer(pattern, map[string]string{})
	}
	mux.HandleFunc("POST "+tenant+"repositories", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(s.got[r.Method+" "+r.URL.Path], "ftp://") {
			write(w, 422, apiv1.Problem{Status: 422, Detail: "url: the scheme ftp is not allowed; nothing was changed"})
			return
		}
		write(w, 200, map[string]string{})
	})
	answer("POST "+tenant+"tokens", apiv1.NewAPIToken{APIToken: apiv1.APIToken{ID: "tok-1", Name: "ci"}, Token: "kedge-api-new"})
	answer("POST "+top+"tokens", apiv1.NewAPIToken{APIToken: apiv1.APIToken{ID: "tok-9", Name: "ops"}, Token: "kedge-api-fleet"})
	answer("POST "+tenant+"agents/prod/tokens", apiv1.NewAgentToken{Token: "kedge-agent-second"})
	answer("POST "+tenant+"agents/prod/rotate-token", apiv1.Operation{ID: "op-2", Action: "agent.rotate-token"})
	answer("PATCH "+tenant+"environments/{name}", apiv1.Environment{Name: "eu", Agents: []string{"prod"}, Selected: []string{"prod"}})
	answer("POST "+tenant+"grants", apiv1.Grant{ID: "grt-1"})
	answer("POST "+tenant+"access-rules", apiv1.AccessRule{Name: "oncall", Agents: []string{"prod"}})
	answer("DELETE "+tenant+"access-rules/{name}", struct{}{})
	answer("PATCH "+tenant+"access-rules/{name}", apiv1.AccessRule{Name: "oncall", Agents: []string{"prod"}})
	mux.HandleFunc("POST "+tenant+"deployments/{name}/confirm-prune", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(s.got[r.Method+" "+r.URL.Path], "nothing") {
			write(w, 409, apiv1.Problem{Status: 409, Detail: "held deletion not found: nothing; nothing was changed"})
			return
		}
		write(w, 200, apiv1.ConfirmedPrune{Objects: []string{"ConfigMap dude/old", "Namespace old"}, Deletions: 2, Targets: 1})
	})
	answer("POST "+tenant+"deployments/{name}/rollback", run2())
	answer("POST "+tenant+"runs/{id}/terminate", apiv1.SyncRun{ID: "run-2", Phase: "Terminated"})
	answer("POST "+tenant+"repositories/rep-1/webhook", apiv1.Webhook{URL: "https://k/api/v1/hooks/rep-1", Secret: "s3cret", SigningToken: "whsec_czNjcmV0"})
	mux.HandleFunc("POST "+tenant+"deployments/{name}/runs", func(w http.ResponseWriter, r *http.Request) {
		run := run2()
		run.Kind, run.Phase = "sync", "Pending"
		switch r.PathValue("name") {
		case "failing":
			run.Operation = "op-1"
		case "away":
			run.Operation = "op-3"
		case "broken":
			write(w, 409, apiv1.Problem{Status: 409, Detail: `deployment "broken" is pinned to revision 2: release it, or specify the revision to sync to; nothing was changed`})
			return
		}
		write(w, 202, run)
	})
	mux.HandleFunc("POST "+tenant+"runs/nope/terminate", func(w http.ResponseWriter, _ *http.Request) {
		write(w, 404, notFound("runs", `run "nope" in tenant "default"`))
	})
}
