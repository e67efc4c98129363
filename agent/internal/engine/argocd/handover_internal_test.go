package argocd

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

type noReporter struct{}

func (noReporter) Status(engine.Status)              {}
func (noReporter) Event(fleet.TargetID, fleet.Event) {}

const sharedObject = "ConfigMap shop/web"

// testApplication is an Application with one object. Its annotations are pairs of name and value.
func testApplication(name, status string, requiresPruning bool, annotations ...string) *application {
	raw := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name},
		"status": map[string]any{"resources": []any{map[string]any{
			"version": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "web", "status": status, "requiresPruning": requiresPruning,
		}}},
	}}
	values := map[string]string{annotationDeployment: "team/app"}
	for pair := range slices.Chunk(annotations, 2) {
		values[pair[0]] = pair[1]
	}
	setAnnotations(raw, values)
	return parse(raw)
}

const stagingURL = "https://staging.example.com"

// An object with the same name in another cluster, or of another tenant, is another object.
func TestHandOversStayInTheirClusterAndTenant(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		other  engine.Desired
		refuse bool
		want   fleet.Reason
	}{
		"same cluster":     {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{Environment: "staging"}}, want: fleet.ReasonHandOverPending},
		"same API server":  {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{Environment: "also"}}, want: fleet.ReasonHandOverPending},
		"not known yet":    {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{Environment: "new"}}, want: fleet.ReasonHandOverPending},
		"other cluster":    {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{Environment: "prod"}}},
		"own cluster":      {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{}}},
		"other tenant":     {other: engine.Desired{Tenant: "foreign", Source: &fleet.EngineSource{Environment: "staging"}}, want: fleet.ReasonPruneBlocked},
		"refused":          {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{Environment: "staging"}}, refuse: true},
		"beyond its grant": {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{Environment: "staging"}, State: fleet.Desired{Limits: fleet.Limits{Kinds: []string{"Secret"}}}}},
		"within its grant": {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{Environment: "staging"}, State: fleet.Desired{Limits: fleet.Limits{Kinds: []string{"ConfigMap"}}}}, want: fleet.ReasonHandOverPending},
		"only a dry run":   {other: engine.Desired{Tenant: "team", Source: &fleet.EngineSource{Environment: "staging"}, State: fleet.Desired{Policy: fleet.Policy{DryRun: true}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := New(Config{Namespace: "kedge-agent", EngineNamespace: "argocd", REST: &rest.Config{}, Reporter: noReporter{}})
			if err != nil {
				t.Fatal(err)
			}
			test.other.Target, test.other.Deployment, test.other.State.Namespace = "tgt-other", "secret-name", "shop"
			test.other.Source.Objects = []string{sharedObject}
			other := newTarget(e, "tgt-other", fleet.Version{})
			other.desired = &test.other
			other.refused.Store(test.refuse)
			e.targets["tgt-other"] = other
			own := newTarget(e, "tgt-own", fleet.Version{})
			own.work = &engine.Desired{Target: "tgt-own", Tenant: "team", Deployment: "app", State: fleet.Desired{Tombstone: true, Consent: true}}
			e.Serve([]fleet.PushEnvironment{{ID: "staging", APIURL: stagingURL}, {ID: "also", APIURL: stagingURL}, {ID: "prod", APIURL: "https://prod.example.com"}})
			app := testApplication("kedge-tgt-own", argoSynced, false, annotationEnvironment, "staging", annotationServer, serverOf(fleet.PushEnvironment{APIURL: stagingURL}, "p"))
			why := own.handOver(app, sharedObject)
			if why.Reason != test.want || test.other.Tenant == "foreign" && strings.Contains(why.Message, "secret-name") {
				t.Errorf("got %+v, want %q", why, test.want)
			}
			end := own.decideEnd(app)
			if deletes := test.want == ""; (len(end.remove) == 1) != deletes || (len(end.keep) == 1) != (test.want == fleet.ReasonPruneBlocked) {
				t.Errorf("the end is %+v", end)
			}
		})
	}
}

// Nothing is taken from an Application of another tenant or cluster, or that still needs the object.
func TestObjectsAreGivenBySameTenantAndClusterOnly(t *testing.T) {
	t.Parallel()
	failed := testApplication("failed", argoUnknown, true)
	failed.status.Conditions = append(failed.status.Conditions, struct {
		Type               string      `json:"type"`
		Message            string      `json:"message"`
		LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	}{Type: "ComparisonError"})
	for name, test := range map[string]struct {
		giver *application
		want  bool
	}{
		"left the source":        {testApplication("a", argoOutOfSync, true), true},
		"ends":                   {testApplication("a", argoSynced, false, annotationEnd, endDetached), true},
		"still in the source":    {testApplication("a", argoSynced, false), false},
		"failed comparison":      {failed, false},
		"unknown":                {testApplication("a", argoUnknown, true), false},
		"of another tenant":      {testApplication("a", argoOutOfSync, true, annotationDeployment, "foreign/app"), false},
		"in another cluster":     {testApplication("a", argoOutOfSync, true, annotationServer, stagingURL), false},
		"the Application itself": {testApplication("to", argoOutOfSync, true), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCache(nil)
			c.applications[test.giver.raw.GetName()] = test.giver
			if got := c.given(testApplication("to", argoOutOfSync, false))[sharedObject]; got != test.want {
				t.Errorf("given: %v", got)
			}
		})
	}
}
