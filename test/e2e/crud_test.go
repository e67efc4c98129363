package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// noun is a kind of resource that users create, read, change and delete.
type noun struct {
	name   string
	list   string // where they are
	create any
	change any    // nil when it cannot be changed
	edit   string // the method of a change
	unread bool
	gone   int // the answer to a deletion
}

func nouns(repoURL string) []noun {
	secret, prune, credential := "another", false, "git"
	return []noun{
		{name: "tenant", list: "/tenants", create: apiv1.CreateTenant{Name: "shop"}, change: apiv1.UpdateTenant{Quota: &apiv1.Quota{Agents: 3}}, edit: "PATCH", gone: 204},
		{name: "environment", list: "environments", create: apiv1.CreateEnvironment{Name: "eu", MatchLabels: map[string]string{"region": "eu"}},
			change: apiv1.UpdateEnvironment{MatchLabels: map[string]string{"region": "us"}}, edit: "PATCH", gone: 204},
		{name: "agent", list: "agents", create: apiv1.EnrollAgent{Name: "prod", Labels: map[string]string{"a": "1"}},
			change: apiv1.UpdateAgent{Labels: map[string]string{"a": "2"}}, edit: "PATCH", gone: 204},
		{name: "credential", list: "credentials", create: apiv1.CreateCredential{Name: "pass", Kind: "https", Username: "me", Secret: "hunter2"},
			change: apiv1.UpdateCredential{Secret: &secret}, edit: "PATCH", gone: 204},
		{name: "repository", list: "repositories", create: apiv1.CreateRepository{URL: "https://git.example.com/web.git"},
			change: apiv1.UpdateRepository{Credential: &credential}, edit: "PATCH", gone: 204},
		{name: "deployment", list: "deployments", create: apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repoURL}},
			change: apiv1.UpdateDeployment{Labels: map[string]string{"team": "x"}, Policy: apiv1.UpdatePolicy{Prune: &prune}}, edit: "PATCH", gone: 202},
		{name: "grant", list: "grants", create: apiv1.CreateGrant{Environment: "default", Grantee: "guest"},
			change: apiv1.UpdateGrant{Limits: apiv1.Limits{Namespaces: []string{"web"}}}, edit: "PUT", gone: 204},
		{name: "API token", list: "tokens", create: apiv1.CreateAPIToken{Name: "ci", Role: "deployer"}, unread: true, gone: 204},
		{name: "fleet token", list: "/tokens", create: apiv1.CreateAPIToken{Name: "ops", Role: "fleet-admin"}, unread: true, gone: 204},
	}
}

// covers: T1, T4, T5
func TestEverythingCanBeCreatedReadChangedAndDeleted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		repo, _ := pushTo(t, "one")
		d := s.tenantClient(t, "acme")
		d.want(t, 201, "POST", "/tenants", apiv1.CreateTenant{Name: "guest"})
		d.want(t, 201, "POST", "credentials", apiv1.CreateCredential{Name: "git", Kind: "https", Secret: "hunter2"})
		for _, n := range nouns(repo.url) {
			t.Run(n.name, func(t *testing.T) {
				for range 3 {
					place := n.created(t, d)
					n.changed(t, d, place)
					n.deleted(t, d, place)
				}
			})
		}
		d.want(t, 204, "PUT", "members/group/web%20team", apiv1.PutMember{Role: "deployer"})
		d.want(t, 204, "PUT", "members/group/web%20team", apiv1.PutMember{Role: "viewer"})
		members := get[apiv1.List[apiv1.Member]](t, d, "members").Items
		if len(members) != 1 || members[0].Subject != "web team" || members[0].Role != "viewer" {
			t.Errorf("the members are %+v", members)
		}
		d.want(t, 204, "DELETE", "members/group/web%20team", nil)
	})
}

// created creates a resource, and checks its location and the listing.
func (n noun) created(t *testing.T, d tenantClient) (place string) {
	t.Helper()
	made := d.want(t, 201, "POST", n.list, n.create)
	place = made.Header.Get("Location")
	if !strings.HasPrefix(place, "/api/v1") || strings.Contains(string(made.Body), "hunter2") {
		t.Fatalf("made at %q: %s", place, made.Body)
	}
	if again := d.ask(t, "POST", n.list, n.create); !n.unread && again.Code != http.StatusConflict {
		t.Errorf("made a second time with the same name: %d %s", again.Code, again.Body)
	}
	listed := d.want(t, 200, "GET", n.list, nil)
	if id := place[strings.LastIndex(place, "/")+1:]; !strings.Contains(string(listed.Body), `"`+id+`"`) {
		t.Errorf("the listing lacks %s: %s", id, listed.Body)
	}
	return place
}

// changed edits a resource: only the last read state can be edited, and repeating an edit has no effect.
func (n noun) changed(t *testing.T, d tenantClient, place string) {
	t.Helper()
	if n.unread {
		return
	}
	read := d.want(t, 200, "GET", place, nil)
	tag := read.Header.Get("ETag")
	changed := d.want(t, 200, n.edit, place, n.change, "If-Match", tag)
	now := changed.Header.Get("ETag")
	if tag == "" || now == tag || now == "" {
		t.Errorf("the ETag is %q, and %q after a change", tag, now)
	}
	// The server also changes a deployment, which is not an edit: its ETag stays.
	if same := d.want(t, 200, n.edit, place, n.change); n.name != "credential" && same.Header.Get("ETag") != now {
		t.Errorf("the same edit again changes %s to %s: %s", now, same.Header.Get("ETag"), same.Body)
	}
	for _, method := range []string{n.edit, "DELETE"} {
		late := d.want(t, 412, method, place, n.change, "If-Match", tag)
		if !strings.Contains(string(late.Body), "changed since") {
			t.Errorf("a late %s is told %s", method, late.Body)
		}
	}
	d.want(t, 422, n.edit, place, n.change, "If-Match", "three")
}

// deleted deletes a resource, and checks that it is neither readable nor listed.
func (n noun) deleted(t *testing.T, d tenantClient, place string) {
	t.Helper()
	answer := d.want(t, n.gone, "DELETE", place, nil)
	if n.gone == http.StatusAccepted { // without an agent it is done immediately
		if op := get[apiv1.Operation](t, d, answer.Header.Get("Location")); op.State != "Completed" || op.Action != "deployment.delete" {
			t.Errorf("the operation of the deletion is %+v", op)
		}
	}
	if n.unread { // a revoked token stays listed
		return
	}
	d.want(t, 404, "GET", place, nil)
	d.want(t, 404, "DELETE", place, nil)
	if n.change != nil {
		d.want(t, 404, n.edit, place, n.change)
	}
}

// covers: T1, T4
func TestSyncRunIsCreatedReadChangedAndTerminated(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		repo, _ := pushTo(t, "one")
		d := s.tenantClient(t, "acme")
		d.want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "away"}) // the first run waits for it, the second for the first
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}, Policy: apiv1.NewPolicy{Manual: true}})
		first := decode[apiv1.SyncRun](t, d.want(t, 202, "POST", "deployments/web/runs", nil))
		second := decode[apiv1.SyncRun](t, d.want(t, 202, "POST", "deployments/web/runs", nil))
		place := "runs/" + second.ID
		tag := d.want(t, 200, "GET", place, nil).Header.Get("ETag")
		if other := d.want(t, 200, "GET", "runs/"+first.ID, nil).Header.Get("ETag"); tag == "" || other == tag {
			t.Fatalf("the runs have the ETags %q and %q", other, tag)
		}
		change := apiv1.UpdateRun{Revision: "v2"}
		now := d.want(t, 200, "PATCH", place, change, "If-Match", tag).Header.Get("ETag")
		if again := d.want(t, 200, "PATCH", place, change).Header.Get("ETag"); now == tag || now == "" || again != now {
			t.Errorf("the ETag was %s, is %s after a change and %s after the same again", tag, now, again)
		}
		d.want(t, 412, "PATCH", place, apiv1.UpdateRun{Revision: "v3"}, "If-Match", tag)
		d.want(t, 412, "POST", place+"/terminate", nil, "If-Match", tag)
		if v := get[apiv1.SyncRun](t, d, place); v.Phase != "Pending" || v.Revision != "v2" {
			t.Errorf("after late requests the run is %+v", v)
		}
		d.want(t, 422, "POST", place+"/terminate", nil, "If-Match", "three")
		d.want(t, 200, "POST", place+"/terminate", nil, "If-Match", now)
		d.want(t, 409, "PATCH", place, apiv1.UpdateRun{Revision: "v3"})
		runs := all(t, d, "deployments/web/runs", "1", func(r apiv1.SyncRun) string { return r.ID })
		if len(runs) != 2 || runs[0].ID != second.ID || runs[0].Phase != "Terminated" {
			t.Errorf("the runs are %+v", runs)
		}
	})
}

// covers: T1 (pages and filters)
func TestListingsHavePagesAndFilters(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d, repo := s.tenantClient(t, "acme"), newRepo(t)
		commit := repo.push(t, map[string]string{"app/cm.yaml": plainManifest("one"), "bad/cm.yaml": "a: [1"})
		d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: "none", MatchLabels: map[string]string{"tier": "none"}})
		light(t, d, "prod")
		d.want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "idle", Labels: map[string]string{"tier": "test"}})
		for i := range 7 {
			req := apiv1.CreateDeployment{Name: fmt.Sprintf("d-%d", i), Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Labels: map[string]string{"half": fmt.Sprint(i % 2)}}
			switch i {
			case 5:
				req.Source.Path = "bad"
			case 6:
				req.Environment = "none"
			}
			d.want(t, 201, "POST", "deployments", req)
		}
		d.await(t, "d-0", func(v apiv1.Deployment) error { return onAgent(v, "prod", commit) })
		d.await(t, "d-5", says("Failed", "bad/cm.yaml"))
		name := func(v apiv1.Deployment) string { return v.Name }
		names := func(query string) string {
			var out []string
			for _, v := range all(t, d, "deployments"+query, "2", name) {
				out = append(out, v.Name)
			}
			return strings.Join(out, " ")
		}
		for query, want := range map[string]string{
			"":                                  "d-0 d-1 d-2 d-3 d-4 d-5 d-6",
			"?label=half%3D1":                   "d-1 d-3 d-5",
			"?environment=none":                 "d-6",
			"?environment=nowhere":              "",
			"?agent=prod":                       "d-0 d-1 d-2 d-3 d-4 d-5",
			"?agent=prod&label=half%3D0&q=d-":   "d-0 d-2 d-4",
			"?q=bad":                            "d-5",
			"?repository=" + repo.url:           "d-0 d-1 d-2 d-3 d-4 d-5 d-6",
			"?repository=https://example.com/x": "",
		} {
			if got := names(query); got != want {
				t.Errorf("GET deployments%s lists %q, not %q", query, got, want)
			}
		}
		agent := func(v apiv1.Agent) string { return v.Name }
		for query, want := range map[string]int{"": 2, "?connected=true": 1, "?connected=false": 1, "?label=tier%3Dtest": 1, "?q=pro": 1, "?q=zzz": 0} {
			if got := all(t, d, "agents"+query, "1", agent); len(got) != want {
				t.Errorf("GET agents%s lists %d, not %d", query, len(got), want)
			}
		}
		for _, query := range []string{"limit=0", "limit=501", "limit=x", "sync=Fine", "label=x"} {
			if a := d.ask(t, "GET", "deployments?"+query, nil); a.Code != 422 {
				t.Errorf("GET deployments?%s answers %d %s", query, a.Code, a.Body)
			}
		}
	})
}

// onAgent is content when a deployment has arrived on one agent.
func onAgent(v apiv1.Deployment, agent, commit string) error {
	i := slices.IndexFunc(v.Targets, func(t apiv1.Target) bool { return t.Agent == agent })
	if i < 0 || v.Targets[i].Sync != "Synced" || v.Targets[i].Health != "Current" || v.Targets[i].Commit != commit {
		return fmt.Errorf("not arrived on %s at %s", agent, commit)
	}
	return nil
}

// covers: T1 (idempotency key)
func TestSameRequestWithAKeyIsDoneOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		labels := map[string]string{"region": "eu"}
		req := apiv1.CreateEnvironment{Name: "eu", MatchLabels: labels}
		first := d.want(t, 201, "POST", "environments", req, "Idempotency-Key", "k1")
		again := d.want(t, 201, "POST", "environments", req, "Idempotency-Key", "k1")
		if diff := cmp.Diff(string(first.Body), string(again.Body)); diff != "" || again.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("the second answer is another one, or does not say what it is:\n%s", diff)
		}
		if again.Header.Get("Location") != first.Header.Get("Location") {
			t.Error("the second answer is about something else")
		}
		d.want(t, 422, "POST", "environments", apiv1.CreateEnvironment{Name: "us", MatchLabels: labels}, "Idempotency-Key", "k1")
		d.want(t, 409, "POST", "environments", req)
		if list := get[apiv1.List[apiv1.Environment]](t, d, "environments"); len(list.Items) != 2 {
			t.Errorf("there are %d environments", len(list.Items))
		}
		// A token is not stored, so it cannot be returned again; but no second agent is created either.
		d.want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "prod"}, "Idempotency-Key", "k3")
		lost := d.want(t, 409, "POST", "agents", apiv1.EnrollAgent{Name: "prod"}, "Idempotency-Key", "k3")
		if !strings.Contains(string(lost.Body), "only in its response") {
			t.Errorf("after a lost response with a token: %s", lost.Body)
		}
		// A refused request may be repeated.
		bad := apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: "https://git.example.com/x"}, Environment: "later"}
		d.want(t, 422, "POST", "deployments?check=false", bad, "Idempotency-Key", "k2")
		d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: "later", Agents: []string{"prod"}})
		d.want(t, 201, "POST", "deployments?check=false", bad, "Idempotency-Key", "k2")
		s.again(t)
		d.Server = s.Server
		kept := d.want(t, 201, "POST", "deployments?check=false", bad, "Idempotency-Key", "k2")
		if kept.Header.Get("Idempotency-Replayed") != "true" {
			t.Error("a key is forgotten by a server that was killed")
		}
		// Keys of different callers are independent.
		other := d.role(t, "deployer")
		if a := other.ask(t, "POST", "deployments?check=false", bad, "Idempotency-Key", "k2"); a.Code != 409 {
			t.Errorf("another caller with the same key gets %d %s", a.Code, a.Body)
		}
	})
}
