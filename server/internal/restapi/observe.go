package restapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

// Log keys that only this package uses.
const (
	keyRequest   = "request"
	keyMethod    = "method"
	keyPath      = "path"
	keyStatus    = "status"
	keyPrincipal = "principal"
)

// requestInfo is the information about a request for its log line. It belongs to the goroutine that serves the
// request.
type requestInfo struct {
	id        string
	method    string
	principal auth.Principal
	tokenKey  string      // identifies the token of the caller without containing it
	agent     fleet.Agent // the caller, in the API of agents
	about     subject
	route     string // pattern of the path; "" if no route matched
	shownOnce bool   // the response contains a secret that must not be stored
	again     bool   // repeating the request is harmless: its response need not be stored
	// recheck checks whether an agent is still authenticated; nil for other callers.
	recheck func(context.Context) error
	// guard calls end when the caller loses its permission, until leave is called; nil for agents.
	guard func(end func()) (leave func())
	err   error
}

type infoKey struct{}

// infoFrom never returns nil.
func infoFrom(ctx context.Context) *requestInfo {
	if info, ok := ctx.Value(infoKey{}).(*requestInfo); ok {
		return info
	}
	return &requestInfo{}
}

func (i *requestInfo) caller() string {
	if i.principal.Name == "" {
		return "the caller"
	}
	if i.principal.Session {
		return fmt.Sprintf("%q", i.principal.Name)
	}
	return fmt.Sprintf("token %q", i.principal.Name)
}

// observed gives each request an id and a log line, and sets the headers of all responses.
func (a *api) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		info := &requestInfo{id: strings.ToLower(rand.Text()[:12]), method: r.Method}
		rec := &statusRecorder{ResponseWriter: w}
		h := w.Header()
		h.Set("X-Request-Id", info.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store") // answers hold tokens and secrets
		ctx := context.WithValue(r.Context(), infoKey{}, info)
		defer func() {
			v := recover()
			if v != nil && v != http.ErrAbortHandler { //nolint:errorlint,err113 // the value that net/http compares with
				a.crashed(ctx, rec, v)
			}
			took := time.Since(start)
			a.log(ctx, r, info, rec.status, took)
			a.metrics.observe(r.Method, info.route, rec.status, took)
			if v == http.ErrAbortHandler { //nolint:errorlint,err113 // as above
				panic(v) // the response is incomplete: net/http closes the connection, so that the client notices
			}
		}()
		next.ServeHTTP(rec, r.WithContext(ctx))
	})
}

// crashed responds for a handler that panicked, if nothing was written yet.
func (a *api) crashed(ctx context.Context, rec *statusRecorder, v any) {
	p := mapError(ctx, fmt.Errorf("handler panicked: %v\n%s", v, debug.Stack()), subject{})
	if rec.status == 0 {
		writeProblem(rec, p)
	}
}

// log writes the log line of a request. It contains neither query nor headers nor bodies, which may contain
// secrets.
func (a *api) log(ctx context.Context, r *http.Request, info *requestInfo, status int, took time.Duration) {
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String(keyRequest, info.id), slog.String(keyMethod, r.Method), slog.String(keyPath, redacted(r.URL.Path)),
		slog.Int(keyStatus, status), slog.Duration(obs.KeyDuration, took), slog.String(obs.KeyAddress, r.RemoteAddr),
	}
	attrs = append(attrs, info.about.attrs()...)
	if info.principal.Name != "" {
		attrs = append(attrs, slog.String(keyPrincipal, info.principal.Name))
	}
	switch {
	case status >= http.StatusInternalServerError:
		level = slog.LevelError
	case status >= http.StatusBadRequest:
		attrs = append(attrs, slog.Bool(obs.KeyUserError, true))
	}
	if info.err != nil {
		attrs = append(attrs, obs.Err(info.err))
	}
	a.cfg.Log.LogAttrs(ctx, level, "request", attrs...)
}

// attrs returns the log attributes of a request.
func (s subject) attrs() []slog.Attr {
	var attrs []slog.Attr
	if s.tenant != "" {
		attrs = append(attrs, slog.String(obs.KeyTenant, s.tenant))
	}
	key, known := map[string]string{
		"tenant": obs.KeyTenant, "agent": obs.KeyAgent, "deployment": obs.KeyDeployment, "environment": obs.KeyEnvironment, "repository": obs.KeyRepository,
	}[s.kind]
	if known && s.name != "" {
		attrs = append(attrs, slog.String(key, s.name))
	}
	return attrs
}

// statusRecorder records the status; http.ResponseController reaches through it with Unwrap.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (s *statusRecorder) WriteHeader(status int) {
	if s.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) { // others announce the response
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusRecorder) Write(b []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.ResponseWriter.Write(b)
}

func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }
