// Package v1alpha1 has the custom resources of Kedge: GitOpsDeployment, ManagedEnvironment, RepositoryCredential and
// SyncRun. A namespace that holds such resources is a tenant of the server.
//
// The types describe the resources for clients and for the generated definitions in deploy/crds. This package imports
// apimachinery only, so that other projects can use it.
//
// +kubebuilder:object:generate=true
// +groupName=gitops.kedge.dev
package v1alpha1
