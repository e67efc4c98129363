package health_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/agent/internal/health"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// covers: A8
func TestOf(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason, object string
		want           fleet.Health
		message        string
	}{
		{"an object without a status is current as soon as it exists",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`, fleet.HealthCurrent, ""},
		{"a Deployment that was just made is in progress",
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, generation: 1}, spec: {replicas: 1}}`, fleet.HealthInProgress, "0/1"},
		{"a Deployment with all replicas is current",
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, generation: 1}, spec: {replicas: 1},
			  status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1,
			  conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True", reason: NewReplicaSetAvailable}]}}`, fleet.HealthCurrent, ""},
		{"a Deployment past its deadline has failed",
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, generation: 1}, spec: {replicas: 1},
			  status: {observedGeneration: 1, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}}`, fleet.HealthFailed, "deadline"},
		{"a Job that runs is in progress: what waits for it waits for its work",
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, status: {startTime: "2026-01-01T00:00:00Z", active: 1}}`, fleet.HealthInProgress, "active: 1"},
		{"a Job that is complete is current",
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, status: {startTime: "2026-01-01T00:00:00Z", succeeded: 1, conditions: [{type: Complete, status: "True"}]}}`, fleet.HealthCurrent, ""},
		{"a Job that has failed is failed",
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, status: {startTime: "2026-01-01T00:00:00Z", failed: 7, conditions: [{type: Failed, status: "True"}]}}`, fleet.HealthFailed, "failed: 7"},
		{"a Job of another group is what its conditions say",
			`{apiVersion: example.com/v1, kind: Job, metadata: {name: a}, status: {conditions: [{type: Ready, status: "True"}]}}`, fleet.HealthCurrent, ""},
		{"a custom resource that is not ready is in progress",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, status: {conditions: [{type: Ready, status: "False", message: not yet}]}}`, fleet.HealthInProgress, "not yet"},
		{"a custom resource says in CEL when it is current",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, annotations: {kedge.dev/health-current: "object.status.phase == 'Up'"}}, status: {phase: Up}}`, fleet.HealthCurrent, ""},
		{"what is neither current nor failed is in progress",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, annotations: {kedge.dev/health-current: "object.status.phase == 'Up'"}}, status: {phase: Starting}}`, fleet.HealthInProgress, "object.status.phase"},
		{"a status that is not written yet is in progress, not an error",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, annotations: {kedge.dev/health-current: "object.status.phase == 'Up'"}}}`, fleet.HealthInProgress, "object.status.phase"},
		{"a custom resource says in CEL when it has failed, and that goes first",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, annotations: {kedge.dev/health-current: "true", kedge.dev/health-failed: "object.status.restarts > 3"}}, status: {restarts: 4}}`, fleet.HealthFailed, "restarts"},
		{"with a rule for failure alone the generic rules say the rest",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, annotations: {kedge.dev/health-failed: "object.status.restarts > 3"}}, status: {restarts: 1, conditions: [{type: Ready, status: "False", message: not yet}]}}`, fleet.HealthInProgress, "not yet"},
		{"an expression that makes no sense is unknown, never healthy",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, annotations: {kedge.dev/health-current: "object.status."}}}`, fleet.HealthUnknown, "health-current"},
		{"an expression that is not true or false is unknown",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, annotations: {kedge.dev/health-current: "1 + 1"}}}`, fleet.HealthUnknown, "not true or false"},
		{"an expression that would never end is cut off",
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, annotations: {kedge.dev/health-current: "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, true))))))"}}}`, fleet.HealthUnknown, "costs too much"},
		{"an object that is being deleted is terminating, and says what that waits for",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [x/y]}}`, fleet.HealthTerminating, "x/y"},
		{"an object that makes no sense is unknown, never healthy",
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, generation: 1}, status: {conditions: nonsense}}`, fleet.HealthUnknown, "cannot be read"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			obj := &unstructured.Unstructured{}
			data, err := yaml.YAMLToJSON([]byte(c.object))
			if err != nil {
				t.Fatal(err)
			}
			if err := utiljson.Unmarshal(data, &obj.Object); err != nil {
				t.Fatal(err)
			}
			got, cause := health.Of(obj)
			if got != c.want || !strings.Contains(cause.Message, c.message) {
				t.Errorf("got %s %q, want %s with %q", got, cause.Message, c.want, c.message)
			}
			if healthy := got == fleet.HealthCurrent; healthy != cause.IsZero() || healthy != (cause.Reason == "") {
				t.Errorf("%s has the cause %+v, want one unless it is healthy", got, cause)
			}
		})
	}
}
