package manifest

import (
	"github.com/kedge-dev/kedge/internal/fleet"
)

// The steps in which kinds are applied. Kinds of a later step may need those of an earlier one.
const (
	rankFoundation = iota // what other objects are in, are instances of, or are limited by
	rankAccess            // permissions: pods of later steps use them
	rankData              // what pods mount
	rankWorkload          // services, workloads, and all other kinds of Kubernetes
	rankCustom            // custom resources: their definitions and controllers are in earlier steps
	rankGate              // calls that the API server makes to pods of ours: a gate that is put up
	// before its pods run would refuse everything else
)

// kindRanks assigns kinds of Kubernetes to steps; all others are rankWorkload.
var kindRanks = map[groupKind]int{
	{"", "Namespace"}: rankFoundation,
	{"apiextensions.k8s.io", "CustomResourceDefinition"}:                 rankFoundation,
	{"scheduling.k8s.io", "PriorityClass"}:                               rankFoundation,
	{"storage.k8s.io", "StorageClass"}:                                   rankFoundation,
	{"storage.k8s.io", "CSIDriver"}:                                      rankFoundation,
	{"storage.k8s.io", "VolumeAttributesClass"}:                          rankFoundation,
	{"node.k8s.io", "RuntimeClass"}:                                      rankFoundation,
	{"networking.k8s.io", "IngressClass"}:                                rankFoundation,
	{"resource.k8s.io", "DeviceClass"}:                                   rankFoundation,
	{"", "ResourceQuota"}:                                                rankFoundation,
	{"", "LimitRange"}:                                                   rankFoundation,
	{"flowcontrol.apiserver.k8s.io", "FlowSchema"}:                       rankFoundation,
	{"", "ServiceAccount"}:                                               rankAccess,
	{"rbac.authorization.k8s.io", "Role"}:                                rankAccess,
	{"rbac.authorization.k8s.io", "ClusterRole"}:                         rankAccess,
	{"rbac.authorization.k8s.io", "RoleBinding"}:                         rankAccess,
	{"rbac.authorization.k8s.io", "ClusterRoleBinding"}:                  rankAccess,
	{"networking.k8s.io", "NetworkPolicy"}:                               rankAccess,
	{"", "ConfigMap"}:                                                    rankData,
	{"", "Secret"}:                                                       rankData,
	{"", "PersistentVolume"}:                                             rankData,
	{"", "PersistentVolumeClaim"}:                                        rankData,
	{"resource.k8s.io", "ResourceClaimTemplate"}:                         rankData,
	{"apiregistration.k8s.io", "APIService"}:                             rankGate,
	{"admissionregistration.k8s.io", "ValidatingWebhookConfiguration"}:   rankGate,
	{"admissionregistration.k8s.io", "MutatingWebhookConfiguration"}:     rankGate,
	{"admissionregistration.k8s.io", "ValidatingAdmissionPolicy"}:        rankGate,
	{"admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"}: rankGate,
	{"admissionregistration.k8s.io", "MutatingAdmissionPolicy"}:          rankGate,
	{"admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"}:   rankGate,
}

// RankOf returns the step of a kind: Namespaces and definitions first, webhooks last.
func RankOf(ref fleet.ObjectRef) int {
	if rank, ok := kindRanks[groupKind{ref.Group, ref.Kind}]; ok {
		return rank
	}
	if !isBuiltin(ref.Group) {
		return rankCustom
	}
	return rankWorkload
}
