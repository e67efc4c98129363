package fleet

// Reason identifies why something is in its state, in one CamelCase word. Messages explain a reason to people; programs
// compare reasons and never messages. Reasons lists all of them; docs/reasons.md is made from it.
type Reason string

// Reasons of objects, and of targets as a whole.
const (
	ReasonSynced              Reason = "Synced"
	ReasonApplying            Reason = "Applying"
	ReasonDependencyNotReady  Reason = "DependencyNotReady"
	ReasonNotReported         Reason = "NotReported"
	ReasonDeleted             Reason = "Deleted"
	ReasonDetached            Reason = "Detached"
	ReasonDryRun              Reason = "DryRun"
	ReasonDryRunFailed        Reason = "DryRunFailed"
	ReasonDrifted             Reason = "Drifted"
	ReasonDriftHealed         Reason = "DriftHealed"
	ReasonDriftRepeats        Reason = "DriftRepeats"
	ReasonReplacing           Reason = "Replacing"
	ReasonReplaced            Reason = "Replaced"
	ReasonNotWatched          Reason = "NotWatched"
	ReasonNotReadable         Reason = "NotReadable"
	ReasonObjectsFailed       Reason = "ObjectsFailed"
	ReasonAdopted             Reason = "Adopted"
	ReasonTakenOver           Reason = "TakenOver"
	ReasonForced              Reason = "Forced"
	ReasonFinished            Reason = "Finished"
	ReasonExistsAlready       Reason = "ExistsAlready"
	ReasonDetaching           Reason = "Detaching"
	ReasonNewerReplica        Reason = "NewerReplica"
	ReasonInventoryNotWritten Reason = "InventoryNotWritten"
	ReasonBundleInvalid       Reason = "BundleInvalid"
	ReasonSourceUnsupported   Reason = "SourceUnsupported"
	ReasonBundleUnsupported   Reason = "BundleUnsupported"
)

// Reasons of targets that Argo CD applies.
const (
	ReasonArgoCDNotFound         Reason = "ArgoCDNotFound"
	ReasonArgoCDWriteFailed      Reason = "ArgoCDWriteFailed"
	ReasonArgoCDNotReconciled    Reason = "ArgoCDNotReconciled"
	ReasonArgoCDComparisonFailed Reason = "ArgoCDComparisonFailed"
	ReasonCredentialNotDelivered Reason = "CredentialNotDelivered"
	ReasonArgoCDSpecRefused      Reason = "ArgoCDSpecRefused"
	ReasonArgoCDSyncFailed       Reason = "ArgoCDSyncFailed"
	ReasonArgoCDNameInUse        Reason = "ArgoCDNameInUse"
	ReasonArgoCDRestored         Reason = "ArgoCDRestored"
	ReasonPolicyUnsupported      Reason = "PolicyUnsupported"
)

// Reasons of upgrades of Argo CD, of their instances, and of their events.
const (
	ReasonEngineUpgradeStarted        Reason = "EngineUpgradeStarted"
	ReasonEngineUpgradeRunning        Reason = "EngineUpgradeRunning"
	ReasonEngineUpgradeSucceeded      Reason = "EngineUpgradeSucceeded"
	ReasonEngineInstanceUpgraded      Reason = "EngineInstanceUpgraded"
	ReasonEngineInstanceNotReady      Reason = "EngineInstanceNotReady"
	ReasonEngineInstallFailed         Reason = "EngineInstallFailed"
	ReasonEngineInstallTimedOut       Reason = "EngineInstallTimedOut"
	ReasonEngineCanaryTimedOut        Reason = "EngineCanaryTimedOut"
	ReasonEngineUpgradeHaltedByUser   Reason = "EngineUpgradeHaltedByUser"
	ReasonEngineUpgradeRollingBack    Reason = "EngineUpgradeRollingBack"
	ReasonEngineUpgradeRollbackFailed Reason = "EngineUpgradeRollbackFailed"
)

// Reasons of objects that cannot be applied.
const (
	ReasonApplyFailed          Reason = "ApplyFailed"
	ReasonForbidden            Reason = "Forbidden"
	ReasonInvalid              Reason = "Invalid"
	ReasonAdmissionDenied      Reason = "AdmissionDenied"
	ReasonWebhookFailed        Reason = "WebhookFailed"
	ReasonFieldConflict        Reason = "FieldConflict"
	ReasonImmutableField       Reason = "ImmutableField"
	ReasonKindNotFound         Reason = "KindNotFound"
	ReasonNamespaceNotFound    Reason = "NamespaceNotFound"
	ReasonNamespaceTerminating Reason = "NamespaceTerminating"
	ReasonNamespaceRequired    Reason = "NamespaceRequired"
	ReasonDuplicateObject      Reason = "DuplicateObject"
	ReasonNotAdopted           Reason = "NotAdopted"
	ReasonOwnedByOther         Reason = "OwnedByOther"
	ReasonOutsideScope         Reason = "OutsideScope"
	ReasonKindNotAllowed       Reason = "KindNotAllowed"
	ReasonOwnerPolicy          Reason = "OwnerPolicy"
	ReasonOwnInstallation      Reason = "OwnInstallation"
	ReasonGrantViolation       Reason = "GrantViolation"
	ReasonClusterUnavailable   Reason = "ClusterUnavailable"
)

// Reasons of objects that have left the source.
const (
	ReasonPruning               Reason = "Pruning"
	ReasonPruned                Reason = "Pruned"
	ReasonPruneTimeout          Reason = "PruneTimeout"
	ReasonPruneFailed           Reason = "PruneFailed"
	ReasonPruneHeld             Reason = "PruneHeld"
	ReasonOverPruneLimit        Reason = "OverPruneLimit"
	ReasonProtectedKind         Reason = "ProtectedKind"
	ReasonNotEmpty              Reason = "NotEmpty"
	ReasonHeldAfterRecovery     Reason = "HeldAfterRecovery"
	ReasonHeldLeftover          Reason = "HeldLeftover"
	ReasonHeldByKindFilter      Reason = "HeldByKindFilter"
	ReasonPruneDisabled         Reason = "PruneDisabled"
	ReasonPruneBlocked          Reason = "PruneBlocked"
	ReasonBundleIncomplete      Reason = "BundleIncomplete"
	ReasonBundleEmpty           Reason = "BundleEmpty"
	ReasonInventoryDamaged      Reason = "InventoryDamaged"
	ReasonNoInventory           Reason = "NoInventory"
	ReasonWaitingForDeployments Reason = "WaitingForDeployments"
	ReasonHandOverPending       Reason = "HandOverPending"
	ReasonNotEvaluated          Reason = "NotEvaluated"
	ReasonCommitNotEvaluated    Reason = "CommitNotEvaluated"
	ReasonHandedOver            Reason = "HandedOver"
	ReasonReleased              Reason = "Released"
	ReasonNotPruned             Reason = "NotPruned"
)

// Reasons of the health of objects.
const (
	ReasonProgressing                Reason = "Progressing"
	ReasonReadyTimeout               Reason = "ReadyTimeout"
	ReasonHealthCheckFailed          Reason = "HealthCheckFailed"
	ReasonHealthUnknown              Reason = "HealthUnknown"
	ReasonTerminating                Reason = "Terminating"
	ReasonNotFound                   Reason = "NotFound"
	ReasonPodsNotReady               Reason = "PodsNotReady"
	ReasonImagePullBackOff           Reason = "ImagePullBackOff"
	ReasonInvalidImageName           Reason = "InvalidImageName"
	ReasonCrashLoopBackOff           Reason = "CrashLoopBackOff"
	ReasonOOMKilled                  Reason = "OOMKilled"
	ReasonCreateContainerConfigError Reason = "CreateContainerConfigError"
	ReasonCreateContainerError       Reason = "CreateContainerError"
	ReasonContainerFailed            Reason = "ContainerFailed"
	ReasonProbeFailed                Reason = "ProbeFailed"
	ReasonEvicted                    Reason = "Evicted"
	ReasonFailedMount                Reason = "FailedMount"
	ReasonUnschedulable              Reason = "Unschedulable"
	ReasonFailedCreate               Reason = "FailedCreate"
)

// Reasons of targets that come from the server.
const (
	ReasonAgentDisconnected    Reason = "AgentDisconnected"
	ReasonAgentNeverConnected  Reason = "AgentNeverConnected"
	ReasonAgentDeleted         Reason = "AgentDeleted"
	ReasonRewound              Reason = "Rewound"
	ReasonVersionRefused       Reason = "VersionRefused"
	ReasonBundleUnavailable    Reason = "BundleUnavailable"
	ReasonLabelMissing         Reason = "LabelMissing"
	ReasonNewRevisionWaits     Reason = "NewRevisionWaits"
	ReasonManual               Reason = "Manual"
	ReasonSuspended            Reason = "Suspended"
	ReasonEnvironmentSuspended Reason = "EnvironmentSuspended"
	ReasonTenantSuspended      Reason = "TenantSuspended"
	ReasonFleetFrozen          Reason = "FleetFrozen"
	ReasonPinned               Reason = "Pinned"
	ReasonTargetAttached       Reason = "TargetAttached"
	ReasonTargetDetached       Reason = "TargetDetached"
	ReasonTargetDeleted        Reason = "TargetDeleted"
	ReasonDeletionAbandoned    Reason = "DeletionAbandoned"
)

// Reasons of deployments and of their pending specs.
const (
	ReasonAvailable         Reason = "Available"
	ReasonNoAgents          Reason = "NoAgents"
	ReasonDeleting          Reason = "Deleting"
	ReasonRendered          Reason = "Rendered"
	ReasonRevisionRendered  Reason = "RevisionRendered"
	ReasonRenderNote        Reason = "RenderNote"
	ReasonSourceNotRead     Reason = "SourceNotRead"
	ReasonSourceUnreadable  Reason = "SourceUnreadable"
	ReasonSourceNotRendered Reason = "SourceNotRendered"
	ReasonRevisionNotFound  Reason = "RevisionNotFound"
	ReasonPathNotFound      Reason = "PathNotFound"
	ReasonRenderFailed      Reason = "RenderFailed"
	ReasonSourceEmpty       Reason = "SourceEmpty"
	ReasonSignatureInvalid  Reason = "SignatureInvalid"
	ReasonSpecRefused       Reason = "SpecRefused"
	ReasonSpecInForce       Reason = "SpecInForce"
	ReasonDeploymentCreated Reason = "DeploymentCreated"
	ReasonDeploymentEdited  Reason = "DeploymentEdited"
	ReasonImagesSet         Reason = "ImagesSet"
	ReasonTargetDismissed   Reason = "TargetDismissed"
	ReasonPruneConfirmed    Reason = "PruneConfirmed"
	ReasonDeploymentDeleted Reason = "DeploymentDeleted"
)

// Reasons of repositories.
const (
	ReasonRepositoryReadable    Reason = "RepositoryReadable"
	ReasonRepositoryUnreadable  Reason = "RepositoryUnreadable"
	ReasonRepositoryNotReadable Reason = "RepositoryNotReadable"
	ReasonRepositoryUnused      Reason = "RepositoryUnused"
	ReasonHostUnknown           Reason = "HostUnknown"
	ReasonHostDenied            Reason = "HostDenied"
	ReasonHostKeyUnknown        Reason = "HostKeyUnknown"
	ReasonRedirected            Reason = "Redirected"
	ReasonNotGit                Reason = "NotAGitRepository"
	ReasonCredentialUnusable    Reason = "CredentialUnusable"
	ReasonNotChecked            Reason = "NotChecked"
)

// Reasons of sync runs.
const (
	ReasonWaitsForTurn      Reason = "WaitsForTurn"
	ReasonReadingSource     Reason = "ReadingSource"
	ReasonSpecPending       Reason = "SpecPending"
	ReasonWaitingForTargets Reason = "WaitingForTargets"
	ReasonSucceeded         Reason = "Succeeded"
	ReasonRunStarted        Reason = "RunStarted"
	ReasonRunSucceeded      Reason = "RunSucceeded"
	ReasonRunFailed         Reason = "RunFailed"
	ReasonRunTerminated     Reason = "RunTerminated"
	ReasonTargetsFailed     Reason = "TargetsFailed"
	ReasonTerminatedByUser  Reason = "TerminatedByUser"
	ReasonSuperseded        Reason = "Superseded"
	ReasonTimedOut          Reason = "TimedOut"
	ReasonRevisionNotKept   Reason = "RevisionNotKept"
	ReasonRunLost           Reason = "RunLost"
)

// Reasons of agents.
const (
	ReasonAgentConnected      Reason = "AgentConnected"
	ReasonAgentEnrolled       Reason = "AgentEnrolled"
	ReasonAgentUninstalling   Reason = "AgentUninstalling"
	ReasonVersionSkew         Reason = "VersionSkew"
	ReasonSeveralClusters     Reason = "SeveralClusters"
	ReasonConfigNotRead       Reason = "ConfigNotRead"
	ReasonConfigApplied       Reason = "ConfigApplied"
	ReasonConfigAbsent        Reason = "ConfigAbsent"
	ReasonConfigInvalid       Reason = "ConfigInvalid"
	ReasonConfigRefused       Reason = "ConfigRefused"
	ReasonClockSkew           Reason = "ClockSkew"
	ReasonCapabilitiesChanged Reason = "CapabilitiesChanged"
	ReasonTokenRotated        Reason = "TokenRotated"
	ReasonTokenRotationFailed Reason = "TokenRotationFailed"
	ReasonNotKeptOffline      Reason = "NotKeptOffline"
	ReasonEngineMismatch      Reason = "EngineMismatch"
)

// Reasons of push environments.
const (
	ReasonEndpointReady        Reason = "EndpointReady"
	ReasonEndpointNotChecked   Reason = "EndpointNotChecked"
	ReasonEndpointUnreachable  Reason = "EndpointUnreachable"
	ReasonEndpointUntrusted    Reason = "EndpointUntrusted"
	ReasonEndpointUnauthorized Reason = "EndpointUnauthorized"
	ReasonEndpointForbidden    Reason = "EndpointForbidden"
	ReasonEndpointNotAPI       Reason = "EndpointNotKubernetes"
	ReasonKubeconfigMissing    Reason = "KubeconfigMissing"
	ReasonKubeconfigInvalid    Reason = "KubeconfigInvalid"
	ReasonKubeconfigRefused    Reason = "KubeconfigUnsupported"
	ReasonContextNotFound      Reason = "ContextNotFound"
	ReasonNoEngineInstance     Reason = "NoEngineInstance"
	ReasonInstanceMoving       Reason = "EngineInstanceMoving"
	ReasonTargetMoved          Reason = "TargetMoved"
	ReasonInstanceDisconnected Reason = "EngineInstanceDisconnected"
	ReasonEnvironmentUnknown   Reason = "EnvironmentNotDelivered"
	ReasonOutsideEnvironment   Reason = "OutsideEnvironment"
	ReasonDestinationChanged   Reason = "DestinationChanged"
)

// Reasons of Kubernetes resources.
const (
	ReasonAccepted            Reason = "Accepted"
	ReasonReady               Reason = "Ready"
	ReasonInvalidSpec         Reason = "InvalidSpec"
	ReasonNameInUse           Reason = "NameInUse"
	ReasonOwnedByResource     Reason = "OwnedByResource"
	ReasonOwnerMissing        Reason = "OwnerMissing"
	ReasonResourceRewound     Reason = "ResourceRewound"
	ReasonEnvironmentNotFound Reason = "EnvironmentNotFound"
	ReasonNoAgentInCluster    Reason = "NoAgentInCluster"
	ReasonSecretNotFound      Reason = "SecretNotFound"
	ReasonSecretInvalid       Reason = "SecretInvalid"
	ReasonTokenRefused        Reason = "TokenRefused"
	ReasonInUse               Reason = "InUse"
	ReasonDeletionHeld        Reason = "DeletionHeld"
	ReasonStoredForDeletion   Reason = "StoredForDeletion"
	ReasonDeploymentNotFound  Reason = "DeploymentNotFound"
	ReasonCredentialAccepted  Reason = "CredentialAccepted"
)

// Reasons of requests that the server refuses.
const (
	ReasonResourceNotFound Reason = "ResourceNotFound"
	ReasonAlreadyExists    Reason = "AlreadyExists"
	ReasonConflict         Reason = "Conflict"
	ReasonResourceChanged  Reason = "ResourceChanged"
	ReasonRequestInvalid   Reason = "RequestInvalid"
	ReasonQuotaExceeded    Reason = "QuotaExceeded"
	ReasonRoleRequired     Reason = "RoleRequired"
	ReasonTunnelDisabled   Reason = "TunnelDisabled"
	ReasonAccessNotAllowed Reason = "AccessNotAllowed"
)

// Reasons of findings of kedge doctor that are no state of one resource.
const (
	ReasonSourceInvalid Reason = "SourceInvalid"
	ReasonSyncFailed    Reason = "SyncFailed"
	ReasonUnhealthy     Reason = "Unhealthy"
	ReasonStale         Reason = "Stale"
)
