package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SyncRun deploys a revision of a GitOpsDeployment now. The SyncRuns of one GitOpsDeployment run one after another, in the
// order of their creation. To terminate a SyncRun, delete it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=kedge
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.gitopsDeploymentName`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.spec.revisionID`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SyncRun struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a SyncRun is immutable: create another SyncRun"
	Spec   SyncRunSpec   `json:"spec"`
	Status SyncRunStatus `json:"status,omitempty"`
}

// SyncRunList is a list of SyncRuns.
//
// +kubebuilder:object:root=true
type SyncRunList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SyncRun `json:"items"`
}

// SyncRunSpec is the desired state of a SyncRun. It is immutable.
type SyncRunSpec struct {
	// GitOpsDeploymentName is the name of a GitOpsDeployment in the namespace of this resource.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	GitOpsDeploymentName string `json:"gitopsDeploymentName"`
	// RevisionID is a branch, a tag, or a commit; the revision of the GitOpsDeployment if absent.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	RevisionID string `json:"revisionID,omitempty"`
}

// SyncRunStatus is the observed state of a SyncRun.
type SyncRunStatus struct {
	// ObservedGeneration is the generation of the spec that the server has processed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Accepted and Complete.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Phase is Pending, Running, Succeeded, Failed, or Terminated.
	// +optional
	Phase string `json:"phase,omitempty"`
	// Message explains the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// Commit is the commit that the revision resolved to.
	// +optional
	Commit string `json:"commit,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}
