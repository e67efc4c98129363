package builtin

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// replicas is the path of what autoscalers set.
const replicas = ".spec.replicas"

// autoscalers are the field managers that replicas are yielded to when they set them through the
// scale subresource. Anybody else who scales, a person or a script, has changed what is ours. The
// vertical pod autoscaler is not among them: it sets no replicas.
var autoscalers = []string{
	"kube-controller-manager", // HorizontalPodAutoscaler
	"keda", "keda-operator",   // KEDA, between zero and one; above that it makes a HorizontalPodAutoscaler
	"cluster-proportional-autoscaler",
	"datadog-cluster-agent", // DatadogPodAutoscaler
}

func isAutoscaler(manager string) bool { return slices.Contains(autoscalers, manager) }

// scalerOf names the autoscaler that has set the replicas of a live object, or "".
func scalerOf(live *unstructured.Unstructured) string {
	for _, entry := range managers(live) {
		if entry.subresource() == "scale" && isAutoscaler(entry.manager()) && entry.fields().has(replicas) {
			return entry.manager()
		}
	}
	return ""
}

// declaresReplicas reports whether there is anything to yield.
func declaresReplicas(m manifest.Object) bool {
	_, found, _ := unstructured.NestedFieldNoCopy(m.Unstructured().Object, "spec", "replicas")
	return found
}
