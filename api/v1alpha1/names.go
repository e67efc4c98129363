package v1alpha1

// The kinds of this group.
const (
	KindGitOpsDeployment     = "GitOpsDeployment"
	KindManagedEnvironment   = "ManagedEnvironment"
	KindRepositoryCredential = "RepositoryCredential"
	KindSyncRun              = "SyncRun"
)

const (
	// ServerFinalizer is set by the server on every resource, so that a deletion is never missed. The server removes it
	// as soon as it has recorded the deletion.
	ServerFinalizer = "gitops.kedge.dev/server"
	// ResourcesFinalizer can be set by users on a GitOpsDeployment: then the resource stays until every object that it
	// deployed is deleted. Objects of protected kinds are held until a user confirms their deletion.
	ResourcesFinalizer = "resources-finalizer.gitops.kedge.dev"
	// AcceptRewound is an annotation that accepts a resource that is older than the spec in force. Its value is
	// metadata.generation of the resource.
	AcceptRewound = "gitops.kedge.dev/accept-rewound"
	// AbandonDeletions is an annotation of a ManagedEnvironment whose cluster is lost. With the value "true", a deletion
	// of the resource does not wait for the agent: the objects in the cluster stay.
	AbandonDeletions = "gitops.kedge.dev/abandon-deletions"
)

// The types of conditions.
const (
	// ConditionAccepted means that the server has stored the spec.
	ConditionAccepted = "Accepted"
	// ConditionReady means that the resource can be used.
	ConditionReady = "Ready"
	// ConditionConnected means that the agent of a ManagedEnvironment is connected.
	ConditionConnected = "Connected"
	// ConditionDeleted says what a deletion waits for.
	ConditionDeleted = "Deleted"
	// ConditionComplete means that a SyncRun ended: True if it succeeded, False if it failed or was terminated.
	ConditionComplete = "Complete"
	// ConditionValidRepositoryURL means that the URL of a RepositoryCredential is that of a Git repository.
	ConditionValidRepositoryURL = "ValidRepositoryURL"
	// ConditionValidRepositoryCredential means that the Git server accepted the credential.
	ConditionValidRepositoryCredential = "ValidRepositoryCredential"
)
