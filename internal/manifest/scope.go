package manifest

import (
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// builtinGroups are the API groups of Kubernetes itself that do not end in ".k8s.io".
var builtinGroups = map[string]bool{
	"": true, "apps": true, "batch": true, "autoscaling": true, "policy": true, "extensions": true,
}

// isBuiltin reports whether a group belongs to Kubernetes itself. Custom resources of the
// Kubernetes projects live in *.x-k8s.io or, when approved, in *.k8s.io: those that need a
// controller of their own are listed, as they come after it.
func isBuiltin(group string) bool {
	switch {
	case builtinGroups[group]:
		return true
	case group == "gateway.networking.k8s.io", group == "snapshot.storage.k8s.io", group == "metrics.k8s.io":
		return false
	}
	return strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".x-k8s.io")
}

type groupKind struct{ group, kind string }

// clusterScoped holds the kinds of Kubernetes itself by scope. A kind that is missing is not known.
var clusterScoped = scopeTable(map[string]map[bool]string{
	"": {
		true: "Namespace Node PersistentVolume ComponentStatus",
		false: "Binding ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate " +
			"ReplicationController ResourceQuota Secret Service ServiceAccount",
	},
	"admissionregistration.k8s.io": {true: "ValidatingWebhookConfiguration MutatingWebhookConfiguration " +
		"ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy MutatingAdmissionPolicyBinding"},
	"apiextensions.k8s.io":         {true: "CustomResourceDefinition"},
	"apiregistration.k8s.io":       {true: "APIService"},
	"apps":                         {false: "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"},
	"autoscaling":                  {false: "HorizontalPodAutoscaler"},
	"batch":                        {false: "CronJob Job"},
	"certificates.k8s.io":          {true: "CertificateSigningRequest ClusterTrustBundle", false: "PodCertificateRequest"},
	"coordination.k8s.io":          {false: "Lease LeaseCandidate"},
	"discovery.k8s.io":             {false: "EndpointSlice"},
	"events.k8s.io":                {false: "Event"},
	"flowcontrol.apiserver.k8s.io": {true: "FlowSchema PriorityLevelConfiguration"},
	"networking.k8s.io":            {true: "IngressClass IPAddress ServiceCIDR", false: "Ingress NetworkPolicy"},
	"node.k8s.io":                  {true: "RuntimeClass"},
	"policy":                       {false: "PodDisruptionBudget"},
	"rbac.authorization.k8s.io":    {true: "ClusterRole ClusterRoleBinding", false: "Role RoleBinding"},
	"resource.k8s.io":              {true: "DeviceClass ResourceSlice DeviceTaintRule", false: "ResourceClaim ResourceClaimTemplate"},
	"scheduling.k8s.io":            {true: "PriorityClass"},
	"storage.k8s.io":               {true: "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass", false: "CSIStorageCapacity"},
})

func scopeTable(kinds map[string]map[bool]string) map[groupKind]bool {
	table := make(map[groupKind]bool)
	for group, byScope := range kinds {
		for cluster, names := range byScope {
			for kind := range strings.FieldsSeq(names) {
				table[groupKind{group, kind}] = cluster
			}
		}
	}
	return table
}

// IsClusterScoped reports whether objects of ref's kind live outside of namespaces. It knows the
// kinds of Kubernetes itself only; for others known is false and a cluster has to be asked.
func IsClusterScoped(ref fleet.ObjectRef) (scoped, known bool) {
	scoped, known = clusterScoped[groupKind{ref.Group, ref.Kind}]
	return scoped, known
}

// Placed fills in the namespace of an object that names none, unless its kind is known to have none.
func Placed(ref fleet.ObjectRef, namespace string) fleet.ObjectRef {
	if scoped, known := IsClusterScoped(ref); known && scoped {
		ref.Namespace = ""
	} else if ref.Namespace == "" {
		ref.Namespace = namespace
	}
	return ref
}

// Claims lists what ref may turn out to be in a cluster. Where only the cluster knows whether a kind has
// namespaces, that is both readings: a claim too many at worst keeps an object.
func Claims(ref fleet.ObjectRef, namespace string) []fleet.ObjectRef {
	ref = Placed(ref, namespace)
	if _, known := IsClusterScoped(ref); known || ref.Namespace == "" {
		return []fleet.ObjectRef{ref}
	}
	bare := ref
	bare.Namespace = ""
	return []fleet.ObjectRef{ref, bare}
}

// IsProtected reports whether deleting ref loses more than itself: a Namespace or a
// CustomResourceDefinition takes everything in it along, a PersistentVolumeClaim its data. They
// are never pruned without being confirmed by name.
func IsProtected(ref fleet.ObjectRef) bool {
	switch (groupKind{ref.Group, ref.Kind}) {
	case groupKind{"", "Namespace"}, groupKind{"", "PersistentVolumeClaim"}, groupKind{"apiextensions.k8s.io", "CustomResourceDefinition"}:
		return true
	}
	return false
}
