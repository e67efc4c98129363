package kube

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// What somebody else has made at the same moment is given back, unless nothing was taken: in a dry run the API
// server has only said what would come of it.
func TestADryRunGivesNothingBack(t *testing.T) {
	t.Parallel()
	live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	live.SetName("a")
	live.SetNamespace("shop")
	live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate}})
	for name, tt := range map[string]struct {
		dryRun   func(*ApplyRequest)
		requests int64
	}{
		"in earnest":                        {func(*ApplyRequest) {}, 1},
		"by policy":                         {func(j *ApplyRequest) { j.Policy.DryRun = true }, 0},
		"to find out what has drifted":      {func(j *ApplyRequest) { j.DryRun = true }, 0},
		"in earnest, and it may be adopted": {func(j *ApplyRequest) { j.Owner.Adopt = true }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"}}`))
			}))
			t.Cleanup(server.Close)
			c, err := NewClient(&rest.Config{Host: server.URL}, Timeouts{Request: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			j := ApplyRequest{
				Ref: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"}, AbsentAt: time.Now(),
				Mapping: Mapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true},
			}
			tt.dryRun(&j)
			err = c.checkNew(t.Context(), j, live)
			var refused *Refusal
			if errors.As(err, &refused) != (tt.requests > 0) || err != nil && refused == nil || requests.Load() != tt.requests {
				t.Errorf("got %v with %d requests, want %d", err, requests.Load(), tt.requests)
			}
		})
	}
}
