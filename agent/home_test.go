package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

type told struct{ last engine.Status }

func (r *told) Status(s engine.Status)            { r.last = s }
func (r *told) Event(fleet.TargetID, fleet.Event) {}

// covers: C11
func TestMissingNamespaceIsToldWhereverOneLooks(t *testing.T) {
	t.Parallel()
	var code atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(code.Load()))
		_, _ = w.Write([]byte(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"home"}}`))
	}))
	t.Cleanup(srv.Close)
	var log strings.Builder
	reporter := &told{}
	h := newHome(Config{Namespace: "home", Kubeconfig: "x", Log: slog.New(slog.NewTextHandler(&log, nil))}, &rest.Config{Host: srv.URL})
	failed := engine.Status{Target: "tgt-1", Observed: fleet.Observed{Sync: fleet.SyncFailed, Message: "as the engine says"}}
	offline := errors.New("not connected")
	tests := []struct {
		code    int32
		missing bool
		again   bool
		reason  string
	}{
		{http.StatusNotFound, true, true, "it may be made later"},
		{http.StatusOK, false, false, "it is there, and stays"},
		{http.StatusForbidden, false, false, "an agent that may not look must not complain"},
		{http.StatusServiceUnavailable, false, true, "the API server may be back soon"},
	}
	for _, tt := range tests {
		code.Store(tt.code)
		if again := h.look(t.Context()); again != tt.again {
			t.Errorf("%d: look() = %v, want %v: %s", tt.code, again, tt.again, tt.reason)
		}
		h.reporter(reporter).Status(failed)
		err := h.ready(t.Context(), func(context.Context) error { return offline })
		for where, text := range map[string]string{"target": reporter.last.Observed.Message, "readyz": err.Error()} {
			if strings.Contains(text, `namespace "home"`) != tt.missing || (tt.missing && !strings.Contains(text, "--namespace")) {
				t.Errorf("%d: the %s says %q: %s", tt.code, where, text, tt.reason)
			}
		}
		if !errors.Is(err, offline) {
			t.Errorf("%d: ready() = %v, want the other problem in it", tt.code, err)
		}
	}
	if n := strings.Count(log.String(), "is missing"); n != 1 || !strings.Contains(log.String(), "create it") {
		t.Errorf("the log says %d times that it is missing, want once, with what to do:\n%s", n, log.String())
	}
	code.Store(http.StatusNotFound)
	h.look(t.Context())
	synced := engine.Status{Target: "tgt-1", Observed: fleet.Observed{Sync: fleet.SyncSynced}}
	if h.reporter(reporter).Status(synced); reporter.last.Observed.Message != "" {
		t.Errorf("a target that is well says %q", reporter.last.Observed.Message)
	}
}
