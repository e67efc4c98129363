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

type lastStatus struct{ last engine.Status }

func (r *lastStatus) Status(s engine.Status)            { r.last = s }
func (r *lastStatus) Event(fleet.TargetID, fleet.Event) {}

// covers: C11
func TestMissingNamespaceIsReportedEverywhere(t *testing.T) {
	t.Parallel()
	var code atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(code.Load()))
		_, _ = w.Write([]byte(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"home"}}`))
	}))
	t.Cleanup(srv.Close)
	var log strings.Builder
	reporter := &lastStatus{}
	h := newNamespaceCheck(Config{Namespace: "home", Kubeconfig: "x", Log: slog.New(slog.NewTextHandler(&log, nil))}, &rest.Config{Host: srv.URL})
	failed := engine.Status{Target: "tgt-1", Observed: fleet.Observed{Sync: fleet.SyncFailed, Message: "message of the engine"}}
	offline := errors.New("not connected")
	tests := []struct {
		code    int32
		missing bool
		retry   bool
		reason  string
	}{
		{http.StatusNotFound, true, true, "it may be created later"},
		{http.StatusOK, false, false, "it exists"},
		{http.StatusForbidden, false, false, "an agent that may not read namespaces cannot check"},
		{http.StatusServiceUnavailable, false, true, "the error is temporary"},
	}
	for _, tt := range tests {
		code.Store(tt.code)
		if retry := h.check(t.Context()); retry != tt.retry {
			t.Errorf("%d: check() = %v, want %v: %s", tt.code, retry, tt.retry, tt.reason)
		}
		h.reporter(reporter).Status(failed)
		err := h.ready(t.Context(), func(context.Context) error { return offline })
		for where, text := range map[string]string{"target": reporter.last.Observed.Message, "readyz": err.Error()} {
			if strings.Contains(text, `namespace "home"`) != tt.missing || (tt.missing && !strings.Contains(text, "--namespace")) {
				t.Errorf("%d: the %s contains %q: %s", tt.code, where, text, tt.reason)
			}
		}
		if !errors.Is(err, offline) {
			t.Errorf("%d: ready() = %v, want the other problem in it", tt.code, err)
		}
	}
	if n := strings.Count(log.String(), "does not exist\""); n != 1 || !strings.Contains(log.String(), "create it") {
		t.Errorf("the log reports it %d times, want once with a remedy:\n%s", n, log.String())
	}
	code.Store(http.StatusNotFound)
	h.check(t.Context())
	synced := engine.Status{Target: "tgt-1", Observed: fleet.Observed{Sync: fleet.SyncSynced}}
	if h.reporter(reporter).Status(synced); reporter.last.Observed.Message != "" {
		t.Errorf("a healthy target has message %q", reporter.last.Observed.Message)
	}
}
