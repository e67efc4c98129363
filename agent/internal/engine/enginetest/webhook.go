package enginetest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// webhookCases are clusters with admission webhooks that the API server calls over TLS.
var webhookCases = []testCase{
	{"fails the object that an admission webhook denies in the webhook's words, and applies the others", deniedByWebhook},
	{"applies the others while an admission webhook does not answer for one object", silentWebhook},
	{"registers a webhook after what it would hold back, and removes it first", webhookLast},
}

var webhooks = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}

// guarding registers a webhook for the ConfigMaps of a namespace at a URL.
const guarding = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: "a-guard-$NS"}
webhooks:
- name: guard.example.com
  clientConfig: {url: "$URL", caBundle: "$CA"}
  rules: [{apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE", "DELETE"], resources: ["configmaps"]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}
  admissionReviewVersions: ["v1"]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 2
`

// webhook is an admission webhook that this test serves.
type webhook struct {
	*httptest.Server
	// decide returns why an object may not be written; "" when it may. It is asked for names other than probe.
	decide atomic.Pointer[func(ctx context.Context, name string) string]
}

func serveWebhook(t *testing.T) *webhook {
	t.Helper()
	h := &webhook{}
	h.answer(func(context.Context, string) string { return "" })
	h.Server = httptest.NewTLSServer(http.HandlerFunc(h.serve))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

func (h *webhook) answer(decide func(ctx context.Context, name string) string) {
	h.decide.Store(&decide)
}

// text is the configuration of the webhook.
func (h *webhook) text() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return strings.NewReplacer("$URL", h.URL, "$CA", base64.StdEncoding.EncodeToString(ca)).Replace(guarding)
}

func (h *webhook) serve(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID, Name string
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	why := "it is only a probe"
	if review.Request.Name != "probe" {
		why = (*h.decide.Load())(r.Context(), review.Request.Name)
	}
	response := map[string]any{"uid": review.Request.UID, "allowed": why == ""}
	if why != "" {
		response["status"] = map[string]any{"message": why, "code": http.StatusForbidden}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

// register puts the webhook in force. The API server reads its webhooks by and by, so that an attempt has to be denied.
func (w *world) register(t *testing.T, h *webhook) {
	t.Helper()
	w.dropLater(t, webhooks, "a-guard-"+w.ns)
	w.h.Cluster.Apply(t, strings.ReplaceAll(h.text(), "$NS", w.ns))
	w.inForce(t)
}

// inForce waits until the webhook is asked about new ConfigMaps.
func (w *world) inForce(t *testing.T) {
	t.Helper()
	probe := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "probe"}}}
	testkit.Eventually(t, limit, func(ctx context.Context) error {
		_, err := w.client.Resource(configMaps).Namespace(w.ns).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "guard.example.com") {
			return fmt.Errorf("the webhook is not asked: %w", err)
		}
		return nil
	})
}

// covers: A12, A10
func deniedByWebhook(t *testing.T, w *world) {
	hook := serveWebhook(t)
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("goes", "1"))
	hook.answer(func(_ context.Context, name string) string {
		if name == "b" {
			return "there must be no b, says the owner of the cluster"
		}
		return ""
	})
	w.register(t, hook)
	mark := w.traffic.mark()
	e.Set(w.desired(t, 2, configMap("a", "2")+configMap("b", "2")+configMap("c", "2")))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	words := "there must be no b, says the owner of the cluster"
	if o := object(t, s, "ConfigMap b"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonAdmissionDenied || !strings.Contains(o.Message, words) || w.exists(t, "b") {
		t.Errorf("b is %s %q, want it denied in the webhook's words", o.Sync, o.Message)
	}
	if !strings.Contains(s.Observed.Message, "ConfigMap "+w.ns+"/b") || !hasReason(s, fleet.ReasonPruneBlocked) {
		t.Errorf("status is %s, want the object, and that nothing is pruned", describe(s))
	}
	for _, name := range []string{"a", "c"} {
		if o := object(t, s, "ConfigMap "+name); o.Sync != fleet.SyncSynced || valueOf(w.get(t, name)) != "2" {
			t.Errorf("%s is %s %q, want it applied", name, o.Sync, valueOf(w.get(t, name)))
		}
	}
	if !w.exists(t, "goes") || len(w.deletes(mark)) != 0 {
		t.Errorf("sent %v, want nothing pruned", w.deletes(mark))
	}
	// The webhook changes its mind, and a retry notices it without a new version.
	hook.answer(func(context.Context, string) string { return "" })
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if !w.exists(t, "b") || w.exists(t, "goes") {
		t.Error("want b applied and goes pruned")
	}
}

// covers: A10
func silentWebhook(t *testing.T, w *world) {
	hook := serveWebhook(t)
	hook.answer(func(ctx context.Context, name string) string {
		if name == "b" {
			<-ctx.Done() // the API server gives up
		}
		return ""
	})
	w.register(t, hook)
	e := w.start(t)
	begun := time.Now()
	e.Set(w.desired(t, 1, many(20)+configMap("b", "1")))
	s := w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if o := find(s, "ConfigMap b"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonWebhookFailed || !strings.Contains(o.Message, `"guard.example.com"`) {
			return "want b failed for the webhook"
		}
		return ""
	})
	for i := range 20 {
		if o := object(t, s, fmt.Sprintf("ConfigMap m%d", i)); o.Sync != fleet.SyncSynced {
			t.Errorf("%s is %s %q after %v, want it applied meanwhile", o.Name, o.Sync, o.Message, time.Since(begun))
		}
	}
}

// A webhook whose server does not exist denies whatever is written after it was registered, and whatever is deleted
// before it is gone. Its name sorts before all others.
//
// covers: A3, A5 (reverse order)
func webhookLast(t *testing.T, w *world) {
	w.dropDefinitions(t)
	w.dropLater(t, webhooks, "a-guard-"+w.ns)
	hook := serveWebhook(t)
	text := hook.text() + widget + widgets + many(20)
	hook.Close()
	e := w.start(t)
	s := w.sync(t, e, 1, text)
	if len(s.Objects) != 23 {
		t.Errorf("status is %s, want 23 objects", describe(s))
	}
	w.inForce(t)
	_, requests := w.traffic.since(0, w.agentNS)
	last := ""
	for _, r := range requests {
		if r.write() {
			last = r.path
		}
	}
	if !strings.HasSuffix(last, "/a-guard-"+w.ns) {
		t.Errorf("the last write is %s, want the webhook", last)
	}
	e.Set(w.tombstone(2))
	s = w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if w.exists(t, "m0") {
		t.Errorf("m0 is there: %s", describe(s))
	}
}
