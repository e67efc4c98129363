package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GitOpsDeploymentStatus is the observed state of a GitOpsDeployment.
type GitOpsDeploymentStatus struct {
	// ObservedGeneration is the generation of the spec that the server has processed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Accepted, Synced, Healthy, SourceReady and, while new revisions are not deployed, Held.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Sync tells whether the clusters match the source.
	// +optional
	Sync SyncStatus `json:"sync,omitempty"`
	// Health is the health of the deployed objects.
	// +optional
	Health HealthStatus `json:"health,omitempty"`
	// Resources are the deployed objects, those with problems first.
	// +optional
	Resources []ResourceStatus `json:"resources,omitempty"`
	// ResourceCount is the number of deployed objects. It is higher than the length of resources if that list is cut.
	// +optional
	ResourceCount int `json:"resourceCount,omitempty"`
	// ReconciledState is the source and the destination that sync and health are about.
	// +optional
	ReconciledState *ReconciledState `json:"reconciledState,omitempty"`
	// OperationState is the newest sync run.
	// +optional
	OperationState *OperationState `json:"operationState,omitempty"`
	// History has the newest rendered revisions, newest first.
	// +optional
	History []RevisionHistory `json:"history,omitempty"`
}

// SyncStatus tells whether the clusters match the source.
type SyncStatus struct {
	// Status is Synced, OutOfSync, Syncing, Pending, Failed, Rewound, Detached, Deleted, or Unknown.
	// +optional
	Status string `json:"status,omitempty"`
	// Revision is the commit that was deployed.
	// +optional
	Revision string `json:"revision,omitempty"`
}

// HealthStatus is the health of objects.
type HealthStatus struct {
	// Status is Healthy, Progressing, Degraded, Missing, Stale, or Unknown. Stale means that the agent is not connected.
	// +optional
	Status string `json:"status,omitempty"`
	// Message explains the status.
	// +optional
	Message string `json:"message,omitempty"`
}

// ResourceStatus is the state of one object in one cluster.
type ResourceStatus struct {
	// +optional
	Group string `json:"group,omitempty"`
	// +optional
	Version string `json:"version,omitempty"`
	Kind    string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Agent is the agent of the cluster, if the environment has several.
	// +optional
	Agent string `json:"agent,omitempty"`
	// Status is Synced, OutOfSync, Failed, Held, …
	// +optional
	Status string `json:"status,omitempty"`
	// Reason identifies the state.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Health HealthStatus `json:"health,omitempty"`
}

// ReconciledState is a source and a destination.
type ReconciledState struct {
	// +optional
	Source ReconciledSource `json:"source,omitempty"`
	// +optional
	Destination ReconciledDestination `json:"destination,omitempty"`
}

// ReconciledSource is a source that was deployed.
type ReconciledSource struct {
	// +optional
	RepoURL string `json:"repoURL,omitempty"`
	// +optional
	Path string `json:"path,omitempty"`
	// +optional
	Branch string `json:"branch,omitempty"`
}

// ReconciledDestination is a destination to which was deployed.
type ReconciledDestination struct {
	// +optional
	Name string `json:"name,omitempty"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// OperationState is the state of a sync.
type OperationState struct {
	// Phase is Pending, Running, Succeeded, Failed, or Terminated.
	Phase string `json:"phase"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Revision string `json:"revision,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// RevisionHistory is a revision that was rendered.
type RevisionHistory struct {
	// ID is the number of the revision.
	ID int64 `json:"id"`
	// Revision is the commit.
	Revision string `json:"revision"`
	// RenderedAt is when its objects were rendered.
	// +optional
	RenderedAt *metav1.Time `json:"renderedAt,omitempty"`
}
