package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the resources.
var GroupVersion = schema.GroupVersion{Group: "gitops.kedge.dev", Version: "v1alpha1"}

// AddToScheme registers the resources.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&GitOpsDeployment{}, &GitOpsDeploymentList{},
		&ManagedEnvironment{}, &ManagedEnvironmentList{},
		&RepositoryCredential{}, &RepositoryCredentialList{},
		&SyncRun{}, &SyncRunList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
