package fieldset

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// replicas is the path of what autoscalers set.
const replicas = ".spec.replicas"

// autoscalers are the field managers that may set replicas through the scale subresource. Replicas that anybody else
// sets, a person or a script, are drift. The vertical pod autoscaler is not listed: it sets no replicas.
var autoscalers = []string{
	"kube-controller-manager", // HorizontalPodAutoscaler
	"keda", "keda-operator",   // KEDA, between zero and one; above that it makes a HorizontalPodAutoscaler
	"cluster-proportional-autoscaler",
	"datadog-cluster-agent", // DatadogPodAutoscaler
}

func isAutoscaler(manager string) bool { return slices.Contains(autoscalers, manager) }

// Autoscaler names the autoscaler that has set the replicas of a live object, or "".
func Autoscaler(live *unstructured.Unstructured) string {
	for _, entry := range Entries(live) {
		if entry.Subresource() == "scale" && isAutoscaler(entry.manager()) && entry.Fields().has(replicas) {
			return entry.manager()
		}
	}
	return ""
}

// DeclaresReplicas reports whether a manifest has a field that an autoscaler may set.
func DeclaresReplicas(m manifest.Object) bool {
	_, found, _ := unstructured.NestedFieldNoCopy(m.Unstructured().Object, "spec", "replicas")
	return found
}
