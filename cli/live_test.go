package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// liveServer answers like a Kedge server with a deployment "web" in some clusters, which it reaches by tunnels.
type liveServer struct {
	mu      sync.Mutex
	answers map[string]string // of API servers, by "AGENT PATH"; an answer that starts with a number is an error
	queries map[string]string // by the same
	streams map[string]chan string
}

const kubeApps = `{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true},{"name":"deployments/scale","kind":"Scale","namespaced":true},{"name":"replicasets","kind":"ReplicaSet","namespaced":true}]}`

const endOfStream = "end"

// kubePod is a pod of a ReplicaSet.
func kubePod(name, set string, restarts int) string {
	return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":%[1]q,"namespace":"shop","uid":"uid-%[1]s","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":%[2]q,"uid":"uid-%[2]s","controller":true}]},
		"spec":{"containers":[{"name":"web"}]},
		"status":{"containerStatuses":[{"name":"web","restartCount":%[3]d,"state":{"running":{}},"lastState":{}}]}}`, name, set, restarts)
}

// newLiveServer has a deployment with the same objects on each agent. Its pods are those of the ReplicaSet web-1.
func newLiveServer(t *testing.T, agents ...string) (*liveServer, map[string]string) {
	t.Helper()
	s := &liveServer{answers: map[string]string{}, queries: map[string]string{}, streams: map[string]chan string{}}
	var targets []apiv1.Target
	for _, agent := range agents {
		target := target(agent, "Synced", "Current")
		target.Objects = []apiv1.Object{
			{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web", Sync: "Synced", Health: "Current"},
			{Version: "v1", Kind: "Secret", Namespace: "shop", Name: "key", Sync: "Synced", Health: "Current"},
		}
		targets = append(targets, target)
		s.answer(agent, "apis/apps/v1", kubeApps)
		s.answer(agent, "apis/apps/v1/namespaces/shop/deployments", `{"items":[{"metadata":{"name":"web","uid":"u"}},{"metadata":{"name":"other","uid":"v"}}]}`)
		s.answer(agent, "api/v1", `{"resources":[{"name":"pods","kind":"Pod","namespaced":true},{"name":"secrets","kind":"Secret","namespaced":true}]}`)
		s.answer(agent, "apis/apps/v1/namespaces/shop/replicasets", `{"items":[
			{"metadata":{"name":"web-1","uid":"uid-web-1","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"u","controller":true}]}},
			{"metadata":{"name":"web-2","uid":"uid-web-2","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"other","uid":"v","controller":true}]}}]}`)
	}
	web := deployment("web", "Synced", "Current", targets...)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, path, kube := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/tenants/default/agents/"), "/kube/")
		switch {
		case kube:
			s.serve(w, r, agent+" "+path)
		case strings.HasSuffix(r.URL.Path, "/deployments/web"):
			write(w, 200, web)
		case strings.HasSuffix(r.URL.Path, "/whoami"):
			write(w, 200, apiv1.Whoami{Name: "admin", Role: "admin", ServerVersion: "v9"})
		default:
			write(w, 404, notFound("deployments", r.URL.Path))
		}
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return s, home(t, srv.URL)
}

func (s *liveServer) answer(agent, path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[agent+" "+path] = text
}

// pods sets the pods of a cluster, with their logs.
func (s *liveServer) pods(agent string, logs map[string]string, pods ...string) {
	s.answer(agent, "api/v1/namespaces/shop/pods", `{"metadata":{"resourceVersion":"7"},"items":[`+strings.Join(pods, ",")+`]}`)
	for pod, text := range logs {
		s.answer(agent, "api/v1/namespaces/shop/pods/"+pod+"/log", text)
	}
}

// stream makes a path a stream, of which the test sends the parts. The empty part breaks the connection, and
// endOfStream ends it.
func (s *liveServer) stream(agent, path string) chan string {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make(chan string, 10)
	s.streams[agent+" "+path] = parts
	return parts
}

func (s *liveServer) query(agent, path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[agent+" "+path]
}

func (s *liveServer) serve(w http.ResponseWriter, r *http.Request, key string) {
	s.mu.Lock()
	s.queries[key] = r.URL.RawQuery
	text, ok := s.answers[key]
	parts, streams := s.streams[key]
	s.mu.Unlock()
	query := r.URL.Query()
	var code int
	var message string
	switch {
	case streams && (query.Get("watch") == "true" || query.Get("follow") == "true"):
		s.send(w, r, parts)
	case !ok:
		write(w, 404, map[string]any{"kind": "Status", "message": key + " not found"})
	default:
		if _, err := fmt.Sscanf(text, "%d", &code); err == nil && code < 600 {
			_, message, _ = strings.Cut(text, " ")
			write(w, code, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": message})
			return
		}
		_, _ = io.WriteString(w, text)
	}
}

// send sends parts until the client goes.
func (s *liveServer) send(w http.ResponseWriter, r *http.Request, parts chan string) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case part := <-parts:
			switch part {
			case "":
				panic(http.ErrAbortHandler)
			case endOfStream:
				return
			}
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// session is a command that runs until the test ends it.
type session struct {
	lines chan string // of its standard output
	errs  *lockedText
	end   func() int
}

// startSession runs a command in the background.
func startSession(t *testing.T, env map[string]string, args ...string) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &lineWriter{lines: make(chan string, 100)}
	s := &session{lines: out.lines, errs: &lockedText{}}
	ended := make(chan int, 1)
	go func() { ended <- runTo(ctx, out, s.errs, env, "", args...) }()
	s.end = sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { s.end() })
	return s
}

// want waits for the next lines.
func (s *session) want(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		select {
		case got := <-s.lines:
			if got != want {
				t.Fatalf("printed %q, want %q\n%s", got, want, s.errs)
			}
		case <-t.Context().Done():
			t.Fatalf("waiting for %q\n%s", want, s.errs)
		}
	}
}

type lineWriter struct {
	rest  string
	lines chan string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest += string(p)
	for {
		line, rest, ok := strings.Cut(w.rest, "\n")
		if !ok {
			return len(p), nil
		}
		w.rest = rest
		w.lines <- line
	}
}

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
