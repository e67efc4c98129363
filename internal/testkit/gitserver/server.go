// Package gitserver is a real Git server in process, for tests, benchmarks, and the demo: smart HTTP with git's
// git-http-backend, protocol version 2, with push, and also HTTPS and SSH. It listens on loopback, requires no
// authentication by default, and can inject failures.
package gitserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves the repositories below one folder. Its methods are safe for concurrent use.
type Server struct {
	dir     string
	backend string
	baseURL string
	http    *http.Server
	pushes  sync.WaitGroup // running calls of onPush

	mu      sync.Mutex
	closers []func() error
	users   map[string]map[string]string // passwords by user name, by repository
	writers map[string]map[string]string // the same, for users who may push
	failure *failure

	down     atomic.Bool
	old      atomic.Bool
	delay    atomic.Int64
	requests atomic.Int64
	onPush   atomic.Pointer[func(repo, ref, commit string)]
}

// Start serves the repositories in dir, which is created if it is missing, on a free port of 127.0.0.1. The
// caller closes the server.
func Start(dir string) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving %q: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of repositories: %w", err)
	}
	backend, err := findBackend()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s := &Server{dir: dir, backend: backend, baseURL: "http://" + listener.Addr().String() + "/"}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		// Serve ends with ErrServerClosed after Close. Clients see all other errors.
		_ = s.http.Serve(listener)
	}()
	return s, nil
}

// findBackend queries git once: tests start very many servers.
var findBackend = sync.OnceValues(func() (string, error) {
	execPath, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return "", fmt.Errorf("finding git: %w", err)
	}
	backend := filepath.Join(strings.TrimSpace(string(execPath)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		return "", fmt.Errorf("finding git-http-backend: %w", err)
	}
	return backend, nil
})

// Close stops the server, closes its connections, and waits for calls of OnPush. Repositories stay.
func (s *Server) Close() error {
	err := s.http.Close()
	s.mu.Lock()
	for _, end := range s.closers {
		err = errors.Join(err, end())
	}
	s.closers = nil
	s.mu.Unlock()
	s.pushes.Wait()
	return err
}

// URL returns the address of a repository over HTTP.
func (s *Server) URL(repo string) string { return s.baseURL + repo + ".git" }

// FileURL returns the address of a repository as a file:// URL.
func (s *Server) FileURL(repo string) string {
	return (&url.URL{Scheme: "file", Path: s.Dir(repo)}).String()
}

// Dir returns the folder of a repository.
func (s *Server) Dir(repo string) string { return filepath.Join(s.dir, repo+".git") }

// Create creates an empty bare repository whose default branch is main. repo may contain slashes.
func (s *Server) Create(repo string) error { return makeBare(s.Dir(repo), serverConfig) }

// makeBare is git init without a process.
func makeBare(dir, config string) error {
	for _, folder := range []string{"objects", "refs"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return fmt.Errorf("making a repository: %w", err)
		}
	}
	for name, content := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("making a repository: %w", err)
		}
	}
	return nil
}

const (
	// cloneConfig is the configuration of every repository.
	cloneConfig = `[core]
	repositoryformatversion = 0
	bare = true
	fsync = none
[gc]
	auto = 0
`
	serverConfig = cloneConfig + `[http]
	receivepack = true
[uploadpack]
	allowFilter = true
	allowAnySHA1InWant = true
[receive]
	denyDeleteCurrent = ignore
	autogc = false
`
)

// Remove deletes a repository.
func (s *Server) Remove(repo string) error { return os.RemoveAll(s.Dir(repo)) }

// OnPush makes the server call f for every ref that a push has changed, shortly after the push, in a separate
// goroutine, like a webhook of a Git host. commit is "" for a deleted ref. nil disables it.
func (s *Server) OnPush(f func(repo, ref, commit string)) {
	if f == nil {
		s.onPush.Store(nil)
		return
	}
	s.onPush.Store(&f)
}

// SetDown makes every request fail with 503 until it is called with false.
func (s *Server) SetDown(down bool) { s.down.Store(down) }

// SetDelay delays every request, until its client disconnects.
func (s *Server) SetDelay(d time.Duration) { s.delay.Store(int64(d)) }

// Requests returns the number of HTTP requests so far.
func (s *Server) Requests() int64 { return s.requests.Load() }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if !s.wait(r.Context()) {
		return
	}
	if s.down.Load() {
		http.Error(w, "down on purpose", http.StatusServiceUnavailable)
		return
	}
	if s.fail(w) {
		return
	}
	if !s.mayPush(r) {
		http.Error(w, "you may only read", http.StatusForbidden)
		return
	}
	if !s.mayRead(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	cleanUp, err := unchunk(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer cleanUp()
	repo, isPush := strings.CutSuffix(r.URL.Path, ".git/git-receive-pack")
	var commands *commandReader
	if isPush && r.Method == http.MethodPost {
		commands = &commandReader{body: r.Body}
		r.Body = commands
	}
	handler := &cgi.Handler{
		Path: s.backend,
		Root: "/",
		Env: []string{
			"GIT_PROJECT_ROOT=" + s.dir,
			"GIT_HTTP_EXPORT_ALL=1",
			"GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_PROTOCOL=" + s.protocol(r),
			"GIT_COMMITTER_NAME=kedge", "GIT_COMMITTER_EMAIL=kedge@localhost",
		},
		Stderr: io.Discard,
	}
	handler.ServeHTTP(w, r)
	if commands != nil {
		s.announce(strings.TrimPrefix(repo, "/"), commands.commands())
	}
}

// SetOld makes the server use version 0 of the protocol over HTTP, like servers before 2018. By default, such a
// server sends commits only by the names of refs.
func (s *Server) SetOld(old bool) { s.old.Store(old) }

func (s *Server) protocol(r *http.Request) string {
	if s.old.Load() {
		return ""
	}
	return r.Header.Get("Git-Protocol")
}

// wait delays a request and reports whether its client is still connected.
func (s *Server) wait(ctx context.Context) bool {
	d := time.Duration(s.delay.Load())
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// unchunk gives a chunked request a length, which CGI needs: git sends large packs in chunks.
func unchunk(r *http.Request) (cleanUp func(), err error) {
	if len(r.TransferEncoding) == 0 {
		return func() {}, nil
	}
	file, err := os.CreateTemp("", "kedge-gitserver-*")
	if err != nil {
		return nil, fmt.Errorf("buffering a request: %w", err)
	}
	cleanUp = func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
	size, err := io.Copy(file, r.Body)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		cleanUp()
		return nil, fmt.Errorf("buffering a request: %w", err)
	}
	r.Body, r.ContentLength, r.TransferEncoding = file, size, nil
	return cleanUp, nil
}
