package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RepositoryCredential gives the deployments of its namespace access to a private Git repository.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=repocred;rc-git,categories=kedge
// +kubebuilder:printcolumn:name="Repository",type=string,JSONPath=`.spec.repository`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="ValidRepositoryCredential")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="ValidRepositoryCredential")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="ValidRepositoryCredential")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be a DNS label of at most 63 characters"
type RepositoryCredential struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RepositoryCredentialSpec   `json:"spec"`
	Status RepositoryCredentialStatus `json:"status,omitempty"`
}

// RepositoryCredentialList is a list of RepositoryCredentials.
//
// +kubebuilder:object:root=true
type RepositoryCredentialList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RepositoryCredential `json:"items"`
}

// RepositoryCredentialSpec is the desired state of a RepositoryCredential.
type RepositoryCredentialSpec struct {
	// Repository is the URL of the Git repository, with the scheme https or ssh.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') || self.startsWith('http://') || self.startsWith('ssh://')",message="the scheme of the URL must be https or ssh"
	Repository string `json:"repository"`
	// Secret is the name of a Secret in the namespace of this resource. It has the keys username and password, or
	// sshPrivateKey and knownHosts.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Secret string `json:"secret"`
}

// RepositoryCredentialStatus is the observed state of a RepositoryCredential.
type RepositoryCredentialStatus struct {
	// ObservedGeneration is the generation of the spec that the server has processed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Accepted, ValidRepositoryURL and ValidRepositoryCredential.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
