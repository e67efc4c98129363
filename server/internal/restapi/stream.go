package restapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type streamControl interface {
	// Follow calls fn with nil as soon as its position is fixed, then with changes after the cursor, in order,
	// until ctx ends or fn fails; a negative cursor starts now. It fails with control.ErrCursorLost if records
	// are missing.
	Follow(ctx context.Context, p auth.Principal, tenant string, after int64, fn func([]store.Change) error) error
}

const (
	streamPath = tenant + "/stream"
	// writeTimeout limits how long a stream waits for a reader that has stopped reading.
	writeTimeout = 30 * time.Second
	fromNow      = -1
)

// registerStream adds the change feed. It is not a huma operation, because keep-alives must be written while
// nothing happens.
func (a *api) registerStream(mux *http.ServeMux) {
	mux.HandleFunc("GET "+streamPath, a.serveStream)
	zero := 0.0
	a.huma.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "stream-changes", Method: http.MethodGet, Path: streamPath,
		Summary: "Follow changes (Server-Sent Events)",
		Description: "Events of type \"change\" carry a Change as data and its seq as id. A comment line comes every 20 seconds. " +
			"An event of type \"reset\" means that records after the cursor are no longer kept: read everything again; the stream continues from now.",
		Parameters: []*huma.Param{
			{Name: "tenant", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}},
			{Name: "after", In: "query", Description: "Start after this seq; without it and without Last-Event-ID, start now.",
				Schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &zero}},
			{Name: "kinds", In: "query", Description: "Only changes of these kinds, separated by commas; all when absent.",
				Schema: &huma.Schema{Type: huma.TypeString}},
			{Name: "Last-Event-ID", In: "header", Description: "Sent by clients that reconnect; takes precedence over 'after'.",
				Schema: &huma.Schema{Type: huma.TypeString}},
		},
		Responses: map[string]*huma.Response{
			"200": {Description: "An endless stream.", Content: map[string]*huma.MediaType{
				"text/event-stream": {Schema: a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[apiv1.Change](), true, "Change")},
			}},
			"default": problemResponse(a.huma.OpenAPI(), "The error and its remedy."),
		},
	})
}

// problemResponse describes an error outside of huma.
func problemResponse(spec *huma.OpenAPI, text string) *huma.Response {
	return &huma.Response{Description: text, Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: spec.Components.Schemas.Schema(reflect.TypeFor[huma.ErrorModel](), true, "ErrorModel")},
	}}
}

func (a *api) serveStream(w http.ResponseWriter, r *http.Request) {
	name, info := r.PathValue("tenant"), infoFrom(r.Context())
	info.about = about(resource{"stream", streamPath}, name, "")
	after, err := cursor(r)
	kinds, wrong := wanted(r)
	if err = cmp.Or(err, wrong); err != nil {
		writeProblem(w, mapError(r.Context(), err, info.about))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var pulse sync.WaitGroup
	defer pulse.Wait() // nothing may write once the handler has returned
	defer cancel()
	s := &eventStream{w: w, rc: http.NewResponseController(w), kinds: kinds, release: func() {}}
	s.admit = func() (func(), error) { return a.streams.take(info.tokenKey, name) }
	defer func() { s.release() }()
	s.onBegin = func() { pulse.Go(func() { s.keepAlive(ctx, cancel, a.cfg.KeepAlive) }) }
	defer info.guard(cancel)()
	err = a.follow(ctx, name, after, s)
	if throttled := (*throttledError)(nil); errors.As(err, &throttled) {
		info.err = err
		tooMany(w, throttled.wait, throttled.detail)
		return
	}
	if err != nil && !s.begun {
		writeProblem(w, mapError(r.Context(), err, info.about))
		return
	}
	info.err = err
}

// follow sends changes until the caller disconnects. A lost cursor is reported and skipped. The report is sent after the
// new position is fixed: a caller that then reads everything again misses no change.
func (a *api) follow(ctx context.Context, name string, after int64, s *eventStream) error {
	p, send := infoFrom(ctx).principal, s.changes
	for {
		err := a.control.Follow(ctx, p, name, after, send)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, errCallerGone):
			return nil
		case errors.As(err, new(*throttledError)):
			return err
		case !errors.Is(err, control.ErrCursorLost):
			return fmt.Errorf("following changes of tenant %q: %w", name, err)
		}
		after, send = fromNow, s.changesAfterReset()
	}
}

// errCallerGone means that a stream cannot be written any more.
var errCallerGone = errors.New("the caller is gone")

// changesAfterReset is changes that reports the reset with the first call.
func (s *eventStream) changesAfterReset() func([]store.Change) error {
	reported := false
	return func(batch []store.Change) error {
		if !reported {
			reported = true
			if err := s.reset(); errors.As(err, new(*throttledError)) {
				return err
			} else if err != nil {
				return errCallerGone
			}
		}
		return s.changes(batch)
	}
}

// cursor returns the start position of the caller.
func cursor(r *http.Request) (int64, error) {
	// A client that reconnects repeats its URL, so Last-Event-ID takes precedence.
	text, field := r.Header.Get("Last-Event-ID"), "header.Last-Event-ID"
	if text == "" {
		text, field = r.URL.Query().Get("after"), "after"
	}
	if text == "" {
		return fromNow, nil
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, fleet.Invalid(field, "must be the id of an event, a number that is not negative")
	}
	return after, nil
}

// streamKinds are the kinds of changes in the stream of a tenant.
var streamKinds = []store.ChangeKind{
	store.ChangeAgent, store.ChangeConnection, store.ChangeToken, store.ChangeEnvironment, store.ChangeRepository,
	store.ChangeDeployment, store.ChangeDesired, store.ChangeStatus, store.ChangeEvent, store.ChangeTenant,
	store.ChangeSettings, store.ChangeCredential, store.ChangeRun, store.ChangeOperation, store.ChangeAgentConfig, store.ChangeEngineUpgrade,
	store.ChangeAccessRule,
}

func kindNames() []string {
	names := make([]string, len(streamKinds))
	for i, kind := range streamKinds {
		names[i] = string(kind)
	}
	return names
}

// wanted returns the requested kinds of changes; nil means all.
func wanted(r *http.Request) (map[store.ChangeKind]bool, error) {
	query := r.URL.Query()
	for name := range query {
		if name != "after" && name != "kinds" {
			return nil, fleet.Invalid(name, "is not a parameter of the stream: use after and kinds")
		}
	}
	if !query.Has("kinds") {
		return nil, nil
	}
	kinds := map[store.ChangeKind]bool{}
	for text := range strings.SplitSeq(query.Get("kinds"), ",") {
		kind := store.ChangeKind(strings.TrimSpace(text))
		if !slices.Contains(streamKinds, kind) {
			return nil, fleet.Invalid("kinds", "%q is not one of %s", kind, strings.Join(kindNames(), ", "))
		}
		kinds[kind] = true
	}
	return kinds, nil
}

// eventStream writes Server-Sent Events. Writing is safe for concurrent use.
type eventStream struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	rc      *http.ResponseController
	kinds   map[store.ChangeKind]bool // nil: all
	begun   bool
	onBegin func()
	// admit counts the stream before it starts, when the caller is authorized.
	admit   func() (release func(), err error)
	release func() // releases what admit has counted
}

// begin sends the response header, once, when the position in the feed is fixed, so that a caller who sees the
// header misses no later change.
func (s *eventStream) begin() error {
	if s.begun {
		return nil
	}
	release, err := s.admit()
	if err != nil {
		return err
	}
	s.begun, s.release = true, release
	defer s.onBegin()
	// A stream has no read deadline.
	if err := s.rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer events
	s.w.WriteHeader(http.StatusOK)
	return s.write(": ready\n\n")
}

func (s *eventStream) changes(batch []store.Change) error {
	if err := s.begin(); err != nil || len(batch) == 0 {
		return err
	}
	var text []byte
	for _, c := range batch {
		if s.kinds != nil && !s.kinds[c.Kind] {
			continue
		}
		data, err := json.Marshal(apiv1.Change{
			Seq: c.Seq, Kind: string(c.Kind), ID: c.ID, AgentID: string(c.AgentID), DeploymentID: string(c.DeploymentID), At: utc(c.At),
		})
		if err != nil {
			return fmt.Errorf("encoding change %d: %w", c.Seq, err)
		}
		text = fmt.Appendf(text, "id: %d\nevent: change\ndata: %s\n\n", c.Seq, data)
	}
	if len(text) == 0 {
		// An event without data moves the cursor of a reader without a notification, so that it does not return
		// to a position that is no longer kept.
		text = fmt.Appendf(text, "id: %d\n\n", batch[len(batch)-1].Seq)
	}
	return s.write(string(text))
}

func (s *eventStream) reset() error {
	if err := s.begin(); err != nil {
		return err
	}
	return s.write("event: reset\ndata: {}\n\n")
}

// keepAlive writes comments while nothing happens.
func (s *eventStream) keepAlive(ctx context.Context, gone func(), every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if s.write(": still here\n\n") != nil {
				gone()
				return
			}
		}
	}
}

func (s *eventStream) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Not every writer supports deadlines; those of net/http do.
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}
