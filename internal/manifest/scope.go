package manifest

import (
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// builtinGroups are the API groups of Kubernetes itself that do not end in ".k8s.io".
var builtinGroups = map[string]bool{
	"": true, "apps": true, "batch": true, "autoscaling": true, "policy": true, "extensions": true,
}

// isBuiltin reports whether a group belongs to Kubernetes. Custom resources of Kubernetes projects are in
// *.x-k8s.io or, if approved, in *.k8s.io: those that need their own controller are listed, because they must
// come after it.
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

// clusterScoped lists the kinds of Kubernetes by scope. A kind that is not listed is unknown.
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

// IsClusterScoped reports whether objects of the kind of ref have no namespace. It knows only kinds of
// Kubernetes; for others, known is false, and only the cluster can tell.
func IsClusterScoped(ref fleet.ObjectRef) (scoped, known bool) {
	scoped, known = clusterScoped[groupKind{ref.Group, ref.Kind}]
	return scoped, known
}

// Placed sets the namespace of an object without one, unless its kind is known to be cluster-scoped.
func Placed(ref fleet.ObjectRef, namespace string) fleet.ObjectRef {
	if scoped, known := IsClusterScoped(ref); known && scoped {
		ref.Namespace = ""
	} else if ref.Namespace == "" {
		ref.Namespace = namespace
	}
	return ref
}

// Claims lists the identities that ref may have in a cluster. If only the cluster knows whether a kind has
// namespaces, it returns both possibilities: a superfluous claim at worst keeps an object.
func Claims(ref fleet.ObjectRef, namespace string) []fleet.ObjectRef {
	ref = Placed(ref, namespace)
	if _, known := IsClusterScoped(ref); known || ref.Namespace == "" {
		return []fleet.ObjectRef{ref}
	}
	bare := ref
	bare.Namespace = ""
	return []fleet.ObjectRef{ref, bare}
}

// IsProtected reports whether deleting ref deletes more than the object: a Namespace or a
// CustomResourceDefinition includes everything in it, a PersistentVolumeClaim its data. Such objects are never
// pruned without a confirmation by name.
func IsProtected(ref fleet.ObjectRef) bool {
	switch (groupKind{ref.Group, ref.Kind}) {
	case groupKind{"", "Namespace"}, groupKind{"", "PersistentVolumeClaim"}, groupKind{"apiextensions.k8s.io", "CustomResourceDefinition"}:
		return true
	}
	return false
}
