package restapi_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// replicas are two servers on one database.
type replicas struct {
	services [2]*control.Service
	servers  [2]*httptest.Server
	admin    string
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	dir, r := t.TempDir(), &replicas{}
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "kedge.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	git, err := gitsource.New(gitsource.Config{Dir: filepath.Join(dir, "git")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	for i := range r.services {
		if r.services[i], err = control.New(control.Config{Key: []byte(strings.Repeat("k", 32))}, st, git); err != nil {
			t.Fatal(err)
		}
		token, err := r.services[i].Bootstrap(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		r.admin += token // only the first one creates it
		r.servers[i] = httptest.NewServer(restapi.New(config(), r.services[i]))
		t.Cleanup(r.servers[i].Close)
	}
	return r
}

// follow opens the stream of the default tenant, and returns a channel that is closed when it ends.
func (r *replicas) follow(t *testing.T, replica int, token string) <-chan struct{} {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.servers[replica].URL+streamURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s", resp.Status)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		}
	}()
	return ended
}

// A lost permission ends streams within 5 s on every replica.
func TestStreamsEndOnEveryReplicaWithinSeconds(t *testing.T) {
	t.Parallel()
	person := fleet.Member{Kind: fleet.MemberPerson, Subject: "jane@example.com", Role: fleet.RoleDeployer}
	cases := []struct {
		reason, method, path, body string
	}{
		{"all sessions of a person are ended", "DELETE", "/api/v1/people/jane@example.com/sessions", ""},
		{"a person is forgotten", "DELETE", "/api/v1/people/jane@example.com", ""},
		{"a member is removed", "DELETE", inDefault + "members/person/jane@example.com", ""},
		{"a member gets another role", "PUT", inDefault + "members/person/jane@example.com", `{"role":"viewer"}`},
		{"a token is revoked", "DELETE", inDefault + "tokens/ID", ""},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t)
			root := auth.Principal{Name: "root", FleetAdmin: true}
			if err := r.services[0].PutMember(t.Context(), root, "default", person); err != nil {
				t.Fatal(err)
			}
			secret, _, err := r.services[0].StartSession(t.Context(), control.Login{Issuer: "https://id.example.com", Subject: "1", Name: "jane@example.com"})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(c.path, "/tokens/") {
				var token fleet.APIToken
				if token, secret, err = r.services[0].CreateAPIToken(t.Context(), root, "default", control.CreateAPIToken{Name: "ci", Role: fleet.RoleViewer}); err != nil {
					t.Fatal(err)
				}
				c.path = strings.Replace(c.path, "ID", string(token.ID), 1)
			}
			streams := []<-chan struct{}{r.follow(t, 0, secret), r.follow(t, 1, secret)}
			other := r.follow(t, 1, r.admin)
			whole{Handler: r.servers[0].Config.Handler, admin: r.admin}.call(t, c.method, c.path, c.body, 204, nil, "Content-Type", "application/json")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			for i, ended := range streams {
				select {
				case <-ended:
				case <-ctx.Done():
					t.Errorf("the stream on replica %d goes on", i)
				}
			}
			select {
			case <-other:
				t.Error("the stream of another person has ended")
			default:
			}
		})
	}
}

// Ending the sessions of a person twice is not an error; an unknown person is.
func TestPeopleAreListedAndLoggedOut(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	w := whole{Handler: r.servers[0].Config.Handler, admin: r.admin}
	const name = "https://id.example.com/users/1" // a claim may be anything
	if _, _, err := r.services[0].StartSession(t.Context(), control.Login{Issuer: "https://id.example.com", Subject: "1", Name: name}); err != nil {
		t.Fatal(err)
	}
	const escaped = "/api/v1/people/https:%2F%2Fid.example.com%2Fusers%2F1"
	for _, sessions := range []int{1, 0, 0} {
		var got apiv1.Person
		w.call(t, "GET", escaped, "", 200, &got)
		if got.Name != name || got.Sessions != sessions {
			t.Errorf("got %+v, want %d sessions", got, sessions)
		}
		w.call(t, "DELETE", escaped+"/sessions", "", 204, nil)
	}
	w.call(t, "DELETE", "/api/v1/people/nobody/sessions", "", 404, nil)
	var list apiv1.List[apiv1.Person]
	w.call(t, "GET", "/api/v1/people?limit=1", "", 200, &list)
	if len(list.Items) != 1 || list.Next != "" {
		t.Errorf("got %+v", list)
	}
}

var instant = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)

// A created resource reads the same later: times have the precision of databases.
func TestTimesHaveOnePrecision(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.enroll(t, "paris")
	for list, body := range map[string]string{
		"/api/v1/tenants":          `{"name":"shop"}`,
		"/api/v1/tokens":           `{"name":"ops","role":"fleet-admin","expiresIn":"12h"}`,
		inDefault + "tokens":       `{"name":"ci","role":"viewer","expiresIn":"12h"}`,
		inDefault + "environments": `{"name":"eu","agents":["paris"]}`,
		inDefault + "deployments":  w.deploy("web", "paris"),
		inDefault + "agents":       `{"name":"rome"}`,
	} {
		made := w.call(t, "POST", list, body, 201, nil).body
		later := w.call(t, "GET", list, "", 200, nil).body
		times := instant.FindAllString(made, -1)
		if len(times) == 0 {
			t.Errorf("%s: no times in %s", list, made)
		}
		for _, at := range times {
			if !strings.Contains(later, at) {
				t.Errorf("%s: %s is not among what it reads later: %s", list, at, later)
			}
		}
	}
}
