package restapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// whole is the REST API with the real control, on a real database.
type whole struct {
	http.Handler
	admin string
	repo  string // URL of a repository with one object in it
}

func newWhole(t *testing.T) whole {
	t.Helper()
	dir := t.TempDir()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "kedge.db")})
	if err != nil {
		t.Fatal(err)
	}
	git, err := gitsource.New(gitsource.Config{Dir: filepath.Join(dir, "git"), Allow: []string{"http", "file"}, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32))}, st, git)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := c.Bootstrap(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = git.Close(), st.Close() })
	fixture{c, st}.work(t)
	return whole{restapi.New(config(), c), admin, newRepo(t, dir)}
}

func newRepo(t *testing.T, dir string) string {
	t.Helper()
	remote, err := gitserver.Start(filepath.Join(dir, "remote"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remote.Close() })
	repo, err := remote.CreateRepo(t.Context(), "apps", filepath.Join(dir, "clone"))
	if err != nil {
		t.Fatal(err)
	}
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n"
	if _, err := repo.CommitAndPush(t.Context(), map[string]string{"deploy/a.yaml": object}, "first"); err != nil {
		t.Fatal(err)
	}
	return remote.URL("apps")
}

// call sends a request with the token of the admin, or with the token in header, and decodes the response into
// out.
func (w whole) call(t *testing.T, method, path, body string, want int, out any, header ...string) answer {
	t.Helper()
	got := do(t, w, method, path, body, append([]string{"Authorization", "Bearer " + w.admin}, header...)...)
	if got.status != want {
		t.Fatalf("%s %s: got %d %s, want %d", method, path, got.status, got.body, want)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(got.body), out); err != nil {
			t.Fatalf("%v in %s", err, got.body)
		}
	}
	return got
}

// enroll creates an agent with its own environment, and returns its token.
func (w whole) enroll(t *testing.T, name string) string {
	t.Helper()
	var done apiv1.Enrollment
	w.call(t, "POST", inDefault+"agents", `{"name":"`+name+`"}`, 201, &done)
	w.call(t, "POST", inDefault+"environments", `{"name":"`+name+`","agents":["`+name+`"]}`, 201, nil)
	return done.Token
}

func (w whole) deploy(name, environment string) string {
	return fmt.Sprintf(`{"name":%q,"environment":%q,"source":{"repoURL":%q}}`, name, environment, w.repo)
}

// poll polls like an agent.
func (w whole) poll(t *testing.T, token, query, have string, want int) (names []string, rows []apiv1.Application, tag string) {
	t.Helper()
	var out apiv1.Applications
	var into any
	if want == 200 {
		into = &out
	}
	got := w.call(t, "GET", cluster+"applications"+query, "", want, into, "Authorization", "Bearer "+token, "If-None-Match", have)
	for _, item := range out.Items {
		names = append(names, item.Name)
	}
	return names, out.Items, got.header.Get("ETag")
}

// rendered polls until every application has objects.
func (w whole) rendered(t *testing.T, token string) (rows []apiv1.Application, tag string) {
	t.Helper()
	for {
		_, rows, tag = w.poll(t, token, "", "", 200)
		if !slices.ContainsFunc(rows, func(a apiv1.Application) bool { return a.Digest == "" }) {
			return rows, tag
		}
		w.poll(t, token, "?wait=30s", tag, 200)
	}
}

// covers: T9, T2, T5
func TestClusterThatPollsIsServedFromCreationToDeletion(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	paris, rome := w.enroll(t, "paris"), w.enroll(t, "rome")
	w.call(t, "POST", deployments, w.deploy("in-rome", "rome"), 201, nil)
	names, _, tag := w.poll(t, paris, "", "", 200)
	if len(names) != 0 {
		t.Fatalf("paris gets %v", names)
	}
	for range 3 { // the same name, three times in a row
		told := make(chan []string, 1)
		begun := time.Now()
		go func() {
			names, _, _ := w.poll(t, paris, "?wait=30s", tag, 200)
			told <- names
		}()
		w.call(t, "POST", deployments, w.deploy("web", "paris"), 201, nil)
		if names := <-told; !slices.Equal(names, []string{"web"}) || time.Since(begun) > 10*time.Second {
			t.Fatalf("after %s paris gets %v", time.Since(begun), names)
		}
		rows, now := w.rendered(t, paris)
		if len(rows) != 1 || rows[0].Commit == "" || rows[0].Source.RepoURL != w.repo {
			t.Fatalf("paris gets %+v", rows)
		}
		w.poll(t, paris, "", now, 304)

		var operation apiv1.Operation
		gone := w.call(t, "DELETE", deployments+"/web", "", 202, &operation)
		_, rows, _ = w.poll(t, paris, "?wait=30s", now, 200)
		if len(rows) != 1 || !rows[0].Tombstone {
			t.Fatalf("paris does not get the deletion: %+v", rows)
		}
		report := fmt.Sprintf(`{"items":[{"id":%q,"epoch":%d,"generation":%d,"sync":"Deleted","health":"NotFound"}]}`, rows[0].ID, rows[0].Epoch, rows[0].Generation)
		// Another cluster cannot report for it.
		w.call(t, "POST", cluster+"status", report, 204, nil, "Authorization", "Bearer "+rome)
		if w.call(t, "GET", gone.header.Get("Location"), "", 200, &operation); operation.State == "Completed" {
			t.Fatal("another agent has completed the deletion")
		}
		w.call(t, "POST", cluster+"status", report, 204, nil, "Authorization", "Bearer "+paris)
		testkit.Eventually(t, 30*time.Second, func(context.Context) error {
			if w.call(t, "GET", gone.header.Get("Location"), "", 200, &operation); operation.State != "Completed" {
				return fmt.Errorf("the deletion is %+v", operation)
			}
			return nil
		})
		_, _, tag = w.poll(t, paris, "", "", 200)
	}
	if names, _, _ := w.poll(t, rome, "", "", 200); !slices.Equal(names, []string{"in-rome"}) {
		t.Errorf("rome gets %v", names)
	}
}

// listed is how many of something there are.
func (w whole) listed(t *testing.T, path string) int {
	t.Helper()
	var out apiv1.List[map[string]any]
	w.call(t, "GET", path, "", 200, &out)
	return len(out.Items)
}

// covers: T6
func TestNothingIsStoredOfABadRequest(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.enroll(t, "paris")
	lists := []string{
		"/api/v1/tenants", "/api/v1/tokens", "/api/v1/audit?limit=500", inDefault + "agents", inDefault + "environments", inDefault + "repositories",
		inDefault + "credentials", inDefault + "deployments", inDefault + "tokens", inDefault + "members", inDefault + "grants", inDefault + "operations",
		inDefault + "access-rules",
	}
	before := map[string]int{}
	for _, path := range lists {
		before[path] = w.listed(t, path)
	}
	for _, c := range []struct {
		path, body, field string
		status            int
	}{
		{"/api/v1/tenants", `{"name":"Not A Name"}`, "body.name", 422},
		{"/api/v1/tokens", `{"name":"","role":"fleet-admin"}`, "body.name", 422},
		{inDefault + "agents", `{"name":"a_b"}`, "body.name", 422},
		{inDefault + "agents", `{"name":"lyon","token":"password"}`, "body.token", 422},
		{inDefault + "agents", `{"name":"lyon","labels":{"?":"x"}}`, "body.labels", 422},
		{inDefault + "agents", `{"name":"paris"}`, "", 409},
		{inDefault + "environments", `{"name":"paris","agents":["paris"]}`, "", 409},
		{inDefault + "environments", `{"name":"x","matchLabels":{"a":"?"}}`, "body.matchLabels", 422},
		{inDefault + "repositories", `{"url":"ftp://x/y"}`, "body.url", 422},
		{inDefault + "credentials", `{"name":"x","kind":"https","secret":""}`, "body.secret", 422},
		{inDefault + "deployments", `{"name":"web","source":{"repoURL":"ftp://x/y"}}`, "body.source.repoURL", 422},
		{inDefault + "deployments", `{"name":"web","source":{"repoURL":"http://127.0.0.1:1/a","path":"../x"}}`, "body.source.path", 422},
		{inDefault + "deployments", `{"name":"web","environment":"nowhere","source":{"repoURL":"http://127.0.0.1:1/a"}}`, "body.environment", 422},
		{inDefault + "access-rules", `{"name":"x","subjects":[{"kind":"token","name":"ci"}],"agents":["nowhere"]}`, "body.agents", 422},
		{inDefault + "access-rules", `{"name":"x","subjects":[{"kind":"token","name":"ci"}]}`, "body.agents", 422},
		{inDefault + "grants", `{"environment":"paris","grantee":"nobody"}`, "body.grantee", 422},
	} {
		got := do(t, w, "POST", c.path, c.body, "Authorization", "Bearer "+w.admin, "Idempotency-Key", "k")
		if detail := got.detail(t); got.status != c.status || !strings.Contains(detail, c.field+": ") && c.field != "" {
			t.Errorf("POST %s %s: got %d %s, want %d that names %s", c.path, c.body, got.status, detail, c.status, c.field)
		}
	}
	for _, path := range lists {
		if after := w.listed(t, path); after != before[path] {
			t.Errorf("%s: %d before, %d after", path, before[path], after)
		}
	}
}

// covers: T1, T4
func TestKeysAndETagsHoldOnARealDatabase(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.enroll(t, "paris")
	first := w.call(t, "POST", deployments, w.deploy("web", "paris"), 201, nil, "Idempotency-Key", "k")
	again := w.call(t, "POST", deployments, w.deploy("web", "paris"), 201, nil, "Idempotency-Key", "k")
	if first.body != again.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("first %s, then %v %s", first.body, again.header, again.body)
	}
	w.call(t, "POST", deployments, w.deploy("web", "rome"), 422, nil, "Idempotency-Key", "k")

	edit := `{"labels":{"team":"shop"},"source":{"path":"deploy"}}`
	seen := w.call(t, "GET", deployments+"/web", "", 200, nil).header.Get("ETag")
	changed := w.call(t, "PATCH", deployments+"/web", edit, 200, nil, "If-Match", seen).header.Get("ETag")
	if changed == seen {
		t.Errorf("the ETag is still %s", seen)
	}
	w.call(t, "PATCH", deployments+"/web", edit, 412, nil, "If-Match", seen)
	w.call(t, "DELETE", deployments+"/web", "", 412, nil, "If-Match", seen)
	var same apiv1.Deployment
	if got := w.call(t, "PATCH", deployments+"/web", edit, 200, &same, "If-Match", changed).header.Get("ETag"); got != changed {
		t.Errorf("the same change twice: %s, then %s", changed, got)
	}
	if same.Source.Path != "deploy" || same.Source.RepoURL == "" || same.Labels["team"] != "shop" {
		t.Errorf("got %+v", same)
	}
}

// covers: T1 (keyset pages, filters)
func TestPagesOfARealDatabase(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.enroll(t, "paris")
	var want []string
	for i := range 7 {
		name := fmt.Sprintf("app-%d", i)
		want = append(want, name)
		body := strings.Replace(w.deploy(name, "paris"), "{", fmt.Sprintf(`{"labels":{"odd":"%t"},`, i%2 == 1), 1)
		w.call(t, "POST", deployments, body, 201, nil)
	}
	read := func(query string) (names []string) {
		for after := ""; ; {
			var page apiv1.List[apiv1.Deployment]
			w.call(t, "GET", deployments+"?limit=3&after="+after+query, "", 200, &page)
			for _, d := range page.Items {
				names = append(names, d.Name)
			}
			if after = page.Next; after == "" {
				return names
			}
		}
	}
	if got := read(""); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := read("&label=odd=true&environment=paris&agent=paris"); !slices.Equal(got, []string{"app-1", "app-3", "app-5"}) {
		t.Errorf("the odd ones: got %v", got)
	}
	if got := read("&q=app-4"); !slices.Equal(got, []string{"app-4"}) {
		t.Errorf("by text: got %v", got)
	}
	if got := read("&environment=nowhere"); len(got) != 0 {
		t.Errorf("nowhere: got %v", got)
	}
}
