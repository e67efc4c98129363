package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/cli"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

const token = "kedge-api-right"

var (
	born = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	now  = born.Add(10 * time.Minute)
)

// server answers like a Kedge server, from values that a test sets.
type server struct {
	mu          sync.Mutex
	agents      []apiv1.Agent
	deployments []apiv1.Deployment
	got         map[string]string // bodies by "METHOD path"
	queries     map[string]string // query strings by the same
	matches     map[string]string // If-Match by the same
	stale       bool              // changes find that the resource has changed
	streams     chan chan apiv1.Change
}

func newServer(t *testing.T) (*server, string) {
	t.Helper()
	s := &server{agents: agents(), deployments: deployments(), got: map[string]string{}, queries: map[string]string{}, matches: map[string]string{}, streams: make(chan chan apiv1.Change, 10)}
	srv := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return s, srv.URL
}

func (s *server) handler() http.Handler {
	const tenant = "/api/v1/tenants/default/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/whoami", func(w http.ResponseWriter, _ *http.Request) {
		write(w, 200, apiv1.Whoami{Name: "admin", Role: "fleet-admin", ServerVersion: "v9"})
	})
	mux.HandleFunc("GET "+tenant+"agents", func(w http.ResponseWriter, r *http.Request) { writePage(w, r, s.agents) })
	mux.HandleFunc("GET "+tenant+"deployments", func(w http.ResponseWriter, _ *http.Request) {
		list := slices.Clone(s.deployments)
		for i := range list {
			list[i].Targets = nil
		}
		write(w, 200, apiv1.List[apiv1.Deployment]{Items: list})
	})
	mux.HandleFunc("GET "+tenant+"deployments/{name}", func(w http.ResponseWriter, r *http.Request) { s.deployment(w, r.PathValue("name")) })
	mux.HandleFunc("GET "+tenant+"deployments/{name}/targets/{agent}", func(w http.ResponseWriter, r *http.Request) {
		write(w, 200, apiv1.Target{Agent: r.PathValue("agent"), Objects: []apiv1.Object{{Kind: "Secret", Namespace: "web", Name: "b", Sync: "Synced", Health: "Current"}}})
	})
	mux.HandleFunc("DELETE "+tenant+"deployments/{name}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	mux.HandleFunc("GET "+tenant+"diagnosis", func(w http.ResponseWriter, _ *http.Request) { write(w, 200, diagnosis()) })
	mux.HandleFunc("GET "+tenant+"deployments/{name}/deletion", func(w http.ResponseWriter, _ *http.Request) {
		write(w, 200, apiv1.Deletion{Clusters: 2, Away: 1, Objects: 12, Kept: 1})
	})
	mux.HandleFunc("POST "+tenant+"deployments", func(w http.ResponseWriter, r *http.Request) {
		made := s.deployments[0]
		if strings.Contains(s.got[r.Method+" "+r.URL.Path], "https://away/") && r.URL.Query().Get("check") != "false" {
			made.Warnings = []string{"the source was not checked: the host is away"}
		}
		write(w, 201, made)
	})
	mux.HandleFunc("POST "+tenant+"environments", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(s.got[r.Method+" "+r.URL.Path], "forbidden") {
			write(w, 403, apiv1.Problem{Status: 403, Detail: `this requires the admin role in tenant "default"; token "ci" has viewer`})
			return
		}
		write(w, 201, apiv1.Environment{Name: "eu"})
	})
	mux.HandleFunc("POST "+tenant+"agents", s.enroll)
	mux.HandleFunc("DELETE "+tenant+"agents/{name}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") != "prod" {
			write(w, 404, notFound("agents", `agent "x" in tenant "default"`))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET "+tenant+"agents/prod/manifest", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "kind: Deployment # %s\n", r.URL.Query().Get("image"))
	})
	mux.HandleFunc("GET "+tenant+"environments", func(w http.ResponseWriter, _ *http.Request) {
		write(w, 200, apiv1.List[apiv1.Environment]{Items: []apiv1.Environment{
			{Name: "default", CreatedAt: born}, {Name: "eu", Agents: []string{"prod"}, MatchLabels: map[string]string{"region": "eu", "a": "b"}, CreatedAt: born},
		}})
	})
	mux.HandleFunc("GET "+tenant+"events", func(w http.ResponseWriter, r *http.Request) {
		write(w, 200, apiv1.List[apiv1.Event]{Items: []apiv1.Event{
			{Seq: 6, At: now, Type: "Normal", Reason: "TargetDeleted", Agent: "prod", Deployment: r.URL.Query().Get("deployment"),
				Message: "the objects of the deleted deployment are gone: 1 object was kept: Namespace web"},
			{Seq: 7, At: born, Type: "Warning", Reason: "ApplyFailed", Agent: "prod", Deployment: r.URL.Query().Get("deployment"),
				Object: "Deployment.apps naww/nginx", Message: "forbidden:\n  no role"},
		}})
	})
	mux.HandleFunc("GET "+tenant+"repositories", func(w http.ResponseWriter, _ *http.Request) {
		write(w, 200, apiv1.List[apiv1.Repository]{Items: []apiv1.Repository{
			{ID: "rep-1", URL: "https://git.example.com/web", CheckedAt: born, WebhookURL: "https://k/api/v1/hooks/rep-1"},
			{ID: "rep-2", URL: "https://git.example.com/nope", CheckedAt: born, WebhookURL: "https://k/api/v1/hooks/rep-2", Error: "authentication failed"},
			{ID: "rep-3", URL: "https://git.example.com/new", WebhookURL: "https://k/api/v1/hooks/rep-3"},
		}})
	})
	mux.HandleFunc("GET "+tenant+"stream", s.stream)
	s.adminRoutes(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			write(w, 401, apiv1.Problem{Status: 401, Detail: `the token is missing, wrong or revoked: send the header "Authorization: Bearer TOKEN"`})
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got[r.Method+" "+r.URL.Path] = string(body)
		s.queries[r.Method+" "+r.URL.Path], s.matches[r.Method+" "+r.URL.Path] = r.URL.RawQuery, r.Header.Get("If-Match")
		if _, stream := strings.CutSuffix(r.URL.Path, "/stream"); stream {
			s.mu.Unlock()
		} else {
			defer s.mu.Unlock()
		}
		if s.stale && r.Header.Get("If-Match") != "" {
			write(w, 412, apiv1.Problem{Status: 412, Detail: "changed"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// enroll knows one agent already, and a server that only its own machine reaches.
func (s *server) enroll(w http.ResponseWriter, r *http.Request) {
	var req apiv1.EnrollAgent
	_ = json.Unmarshal([]byte(s.got[r.Method+" "+r.URL.Path]), &req)
	if req.Name == "lost" {
		const message = `agent "lost" in tenant "default" already exists`
		write(w, 409, apiv1.Problem{
			Status: 409, Detail: message + ": GET /api/v1/tenants/default/agents/lost shows it; use another name; nothing was changed",
			ProblemMembers: apiv1.ProblemMembers{Reason: string(fleet.ReasonAlreadyExists), Message: message, List: "/api/v1/tenants/default/agents"},
		})
		return
	}
	if req.Name == "bare" && req.Image == "" && !req.WithoutDeployment {
		write(w, 422, apiv1.Problem{Status: 422, Detail: "image: no image is given", Errors: []apiv1.ProblemDetail{{Location: "body.image", Message: "no image is given"}}})
		return
	}
	manifest := "kind: Namespace\n"
	if req.Name == "near" {
		manifest = "args:\n- --server-address=grpc://127.0.0.1:8080\nimage: registry.example.com/kedge-agent:v9\n"
	}
	write(w, 201, apiv1.Enrollment{Agent: apiv1.Agent{Name: req.Name, Namespaces: req.Namespaces}, Token: "kedge-agent-new", Manifest: manifest})
}

func (s *server) deployment(w http.ResponseWriter, name string) {
	for _, d := range s.deployments {
		if d.Name == name {
			w.Header().Set("ETag", `"`+d.ID+`.1"`)
			write(w, 200, d)
			return
		}
	}
	write(w, 404, notFound("deployments", fmt.Sprintf("deployment %q in tenant \"default\"", name)))
}

// notFound is the answer of a server that does not have a resource.
func notFound(collection, subject string) apiv1.Problem {
	message, list := subject+" was not found", "/api/v1/tenants/default/"+collection
	return apiv1.Problem{
		Status: 404, Detail: message + ": check the name and the tenant; GET " + list + " lists all",
		ProblemMembers: apiv1.ProblemMembers{Reason: string(fleet.ReasonResourceNotFound), Message: message, List: list},
	}
}

// stream hands each open feed to the test.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	changes := make(chan apiv1.Change)
	s.streams <- changes
	for {
		select {
		case <-r.Context().Done():
			return
		case c := <-changes:
			data, _ := json.Marshal(c)
			fmt.Fprintf(w, "id: %d\nevent: change\ndata: %s\n\n", c.Seq, data)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// set changes what the server answers.
func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func write(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// writePage serves one agent per page.
func writePage(w http.ResponseWriter, r *http.Request, items []apiv1.Agent) {
	var out apiv1.List[apiv1.Agent]
	for _, item := range items {
		if item.Name > r.URL.Query().Get("after") {
			if len(out.Items) == 1 {
				out.Next = out.Items[0].Name
				break
			}
			out.Items = append(out.Items, item)
		}
	}
	write(w, 200, out)
}

// result is what a run of the program left.
type result struct {
	out, err string
	code     int
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.code, r.out, r.err)
}

// home is an environment with a login to url; no login when it is empty.
func home(t *testing.T, url string) map[string]string {
	t.Helper()
	env := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
	if url != "" {
		if r := run(t, env, token, "login", url); r.code != 0 {
			t.Fatal(r)
		}
	}
	return env
}

func run(t *testing.T, env map[string]string, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := runTo(t.Context(), &out, &errOut, env, stdin, args...)
	return result{out.String(), errOut.String(), code}
}

func runTo(ctx context.Context, out, errOut io.Writer, env map[string]string, stdin string, args ...string) int {
	return cli.Run(ctx, args, cli.Options{
		In: strings.NewReader(stdin), Out: out, Err: errOut, Version: "v9",
		Env: func(key string) string { return env[key] }, Now: func() time.Time { return now },
	})
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
