package restapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type replyControl interface {
	// ClaimReply reserves an idempotency key for a request of p; if it is in use, it returns the stored reply
	// and false.
	ClaimReply(ctx context.Context, p auth.Principal, r store.Reply) (store.Reply, bool, error)
	// CompleteReply stores the response of a claimed key.
	CompleteReply(ctx context.Context, p auth.Principal, r store.Reply) error
	// ReleaseReply releases the claim of a request that changed nothing.
	ReleaseReply(ctx context.Context, p auth.Principal, key string) error
}

const (
	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "Idempotency-Replayed"

	maxKey = 255
	// abandoned is the age at which a running request counts as lost because its server stopped. No handler
	// takes as long.
	abandoned = 2 * bodyTimeout
	// keyedTimeout ends a request whose caller may have disconnected.
	keyedTimeout = bodyTimeout
)

// replayed returns the first response again for a POST with a known idempotency key.
func (a *api) replayed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(headerIdempotencyKey)
		if r.Method != http.MethodPost || key == "" {
			next.ServeHTTP(w, r)
			return
		}
		request, ok := a.hashed(w, r, key)
		if !ok {
			return
		}
		ctx, p := r.Context(), infoFrom(r.Context()).principal
		kept, fresh, err := a.control.ClaimReply(ctx, p, store.Reply{Key: key, Request: request})
		switch {
		case err != nil:
			writeProblem(w, mapError(ctx, err, subject{}))
		case fresh:
			a.serveOnce(w, r, key, next)
		case !bytes.Equal(kept.Request, request):
			writeProblem(w, problem(http.StatusUnprocessableEntity,
				"this idempotency key was used for another request: use a new key for each request; nothing was changed"))
		case kept.Status == 0:
			a.underWay(w, kept)
		default:
			replay(w, kept)
		}
	})
}

// hashed reads the body and computes the hash of the request. ok is false if it has already responded.
func (a *api) hashed(w http.ResponseWriter, r *http.Request, key string) (sum []byte, ok bool) {
	if !printable(key) || len(key) > maxKey {
		err := fleet.Invalid("header."+headerIdempotencyKey, "must be at most %d printable ASCII characters", maxKey)
		writeProblem(w, mapError(r.Context(), err, subject{}))
		return nil, false
	}
	// Not every writer supports deadlines; those of net/http do.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeProblem(w, problem(http.StatusRequestEntityTooLarge, fmt.Sprintf(
			"the body could not be read or is larger than %d bytes; nothing was changed", maxBody)))
		return nil, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", r.Method, r.URL.RequestURI())
	h.Write(body)
	return h.Sum(nil), true
}

func printable(text string) bool {
	for _, c := range []byte(text) {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return true
}

// serveOnce handles a request and stores the response before the caller gets it: a caller who got it gets the
// same one again.
func (a *api) serveOnce(w http.ResponseWriter, r *http.Request, key string, next http.Handler) {
	// The result must be stored even if the caller has disconnected.
	ctx, info := context.WithoutCancel(r.Context()), infoFrom(r.Context())
	held := &heldAnswer{header: w.Header()}
	release := func() {
		if err := a.control.ReleaseReply(ctx, info.principal, key); err != nil && info.err == nil {
			info.err = fmt.Errorf("releasing an idempotency key: %w", err)
		}
	}
	// Idempotency keys exist for callers that disconnect: finish the request and store its response.
	working, cancel := context.WithTimeout(ctx, keyedTimeout)
	defer cancel()
	next.ServeHTTP(held, r.WithContext(working))
	switch {
	case held.status >= http.StatusInternalServerError:
		// The outcome is unknown: the key stays in use, and a repeated request gets this error.
		held.send(w)
		return
	case held.status >= http.StatusBadRequest || info.again:
		release() // nothing was changed
		held.send(w)
		return
	}
	if err := a.control.CompleteReply(ctx, info.principal, a.keep(info, key, held)); err != nil {
		// The change is done, and the caller is informed; the same key is refused as running.
		info.err = fmt.Errorf("storing the response of an idempotency key: %w", err)
	}
	held.send(w)
}

// keep returns the response to store, without secrets that are shown once.
func (a *api) keep(info *requestInfo, key string, held *heldAnswer) store.Reply {
	reply := store.Reply{Key: key, Status: held.status, Body: held.body.Bytes(), Location: held.header.Get("Location")}
	if !info.shownOnce {
		return reply
	}
	p := problem(http.StatusConflict, fmt.Sprintf(
		"%s was created by the first request with this idempotency key; the token was only in its response and is not stored: "+
			"if that response was lost, create another token", info.about))
	reply.Status = p.Status
	reply.Body, _ = json.Marshal(p) // strings and a number: it cannot fail
	return reply
}

func (a *api) underWay(w http.ResponseWriter, kept store.Reply) {
	if a.cfg.Now().Sub(kept.At) > abandoned {
		writeProblem(w, problem(http.StatusConflict,
			"the server stopped during the first request with this idempotency key: check whether it took effect, and use a new key if it did not"))
		return
	}
	w.Header().Set("Retry-After", "1")
	writeProblem(w, problem(http.StatusConflict, "the first request with this idempotency key is still running: try again in a moment"))
}

func replay(w http.ResponseWriter, kept store.Reply) {
	h := w.Header()
	h.Set(headerReplayed, "true")
	if kept.Location != "" {
		h.Set("Location", kept.Location)
	}
	switch {
	case len(kept.Body) == 0:
	case kept.Status >= http.StatusBadRequest:
		h.Set("Content-Type", "application/problem+json")
	default:
		h.Set("Content-Type", "application/json")
	}
	w.WriteHeader(kept.Status)
	_, _ = w.Write(kept.Body)
}

// heldAnswer buffers a response.
type heldAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *heldAnswer) Header() http.Header { return h.header }

func (h *heldAnswer) WriteHeader(status int) {
	if h.status == 0 {
		h.status = status
	}
}

func (h *heldAnswer) Write(b []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	return h.body.Write(b)
}

func (h *heldAnswer) send(w http.ResponseWriter) {
	h.WriteHeader(http.StatusOK)
	if h.body.Len() > 0 {
		h.header.Set("Content-Length", strconv.Itoa(h.body.Len()))
	}
	w.WriteHeader(h.status)
	_, _ = w.Write(h.body.Bytes())
}
