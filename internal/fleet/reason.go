package fleet

// Reason identifies why something is in its state, in one CamelCase word. Messages explain a reason to people; programs
// compare reasons and never messages. Reasons lists all of them; docs/reasons.md is made from it.
type Reason string

// Reasons of objects, and of targets as a whole.
const (
	ReasonSynced             Reason = "Synced"
	ReasonApplying           Reason = "Applying"
	ReasonDependencyNotReady Reason = "DependencyNotReady"
	ReasonNotReported        Reason = "NotReported"
	ReasonDeleted            Reason = "Deleted"
	ReasonDetached           Reason = "Detached"
	ReasonDryRun             Reason = "DryRun"
	ReasonDryRunFailed       Reason = "DryRunFailed"
	ReasonDrifted            Reason = "Drifted"
	ReasonDriftHealed        Reason = "DriftHealed"
	ReasonDriftRepeats       Reason = "DriftRepeats"
	ReasonReplacing          Reason = "Replacing"
	ReasonReplaced           Reason = "Replaced"
	ReasonNotWatched         Reason = "NotWatched"
	ReasonNotReadable        Reason = "NotReadable"
	ReasonObjectsFailed      Reason = "ObjectsFailed"
	ReasonAdopted            Reason = "Adopted"
	ReasonTakenOver          Reason = "TakenOver"
	ReasonForced             Reason = "Forced"
)

// Reasons of objects that cannot be applied.
const (
	ReasonApplyFailed        Reason = "ApplyFailed"
	ReasonForbidden          Reason = "Forbidden"
	ReasonInvalid            Reason = "Invalid"
	ReasonAdmissionDenied    Reason = "AdmissionDenied"
	ReasonFieldConflict      Reason = "FieldConflict"
	ReasonImmutableField     Reason = "ImmutableField"
	ReasonKindNotFound       Reason = "KindNotFound"
	ReasonNamespaceNotFound  Reason = "NamespaceNotFound"
	ReasonNotAdopted         Reason = "NotAdopted"
	ReasonOwnedByOther       Reason = "OwnedByOther"
	ReasonOutsideScope       Reason = "OutsideScope"
	ReasonOwnerPolicy        Reason = "OwnerPolicy"
	ReasonOwnInstallation    Reason = "OwnInstallation"
	ReasonGrantViolation     Reason = "GrantViolation"
	ReasonClusterUnavailable Reason = "ClusterUnavailable"
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
	ReasonHeldAfterRecovery     Reason = "HeldAfterRecovery"
	ReasonPruneDisabled         Reason = "PruneDisabled"
	ReasonPruneBlocked          Reason = "PruneBlocked"
	ReasonBundleIncomplete      Reason = "BundleIncomplete"
	ReasonBundleEmpty           Reason = "BundleEmpty"
	ReasonInventoryDamaged      Reason = "InventoryDamaged"
	ReasonNoInventory           Reason = "NoInventory"
	ReasonWaitingForDeployments Reason = "WaitingForDeployments"
	ReasonHandOverPending       Reason = "HandOverPending"
	ReasonHandedOver            Reason = "HandedOver"
	ReasonReleased              Reason = "Released"
	ReasonNotPruned             Reason = "NotPruned"
)

// Reasons of the health of objects.
const (
	ReasonProgressing                Reason = "Progressing"
	ReasonReadyTimeout               Reason = "ReadyTimeout"
	ReasonHealthCheckFailed          Reason = "HealthCheckFailed"
	ReasonTerminating                Reason = "Terminating"
	ReasonNotFound                   Reason = "NotFound"
	ReasonPodsNotReady               Reason = "PodsNotReady"
	ReasonImagePullBackOff           Reason = "ImagePullBackOff"
	ReasonInvalidImageName           Reason = "InvalidImageName"
	ReasonCrashLoopBackOff           Reason = "CrashLoopBackOff"
	ReasonOOMKilled                  Reason = "OOMKilled"
	ReasonCreateContainerConfigError Reason = "CreateContainerConfigError"
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
	ReasonAvailable          Reason = "Available"
	ReasonNoAgents           Reason = "NoAgents"
	ReasonDeleting           Reason = "Deleting"
	ReasonRendered           Reason = "Rendered"
	ReasonRevisionRendered   Reason = "RevisionRendered"
	ReasonRenderNote         Reason = "RenderNote"
	ReasonSourceNotRead      Reason = "SourceNotRead"
	ReasonSourceUnreadable   Reason = "SourceUnreadable"
	ReasonSourceNotRendered  Reason = "SourceNotRendered"
	ReasonRevisionNotFound   Reason = "RevisionNotFound"
	ReasonPathNotFound       Reason = "PathNotFound"
	ReasonRenderFailed       Reason = "RenderFailed"
	ReasonSourceEmpty        Reason = "SourceEmpty"
	ReasonSignatureInvalid   Reason = "SignatureInvalid"
	ReasonSpecRefused        Reason = "SpecRefused"
	ReasonSpecInForce        Reason = "SpecInForce"
	ReasonQuotaExceeded      Reason = "QuotaExceeded"
	ReasonCommitNotEvaluated Reason = "CommitNotEvaluated"
	ReasonDeploymentCreated  Reason = "DeploymentCreated"
	ReasonDeploymentUpdated  Reason = "DeploymentUpdated"
	ReasonDeploymentDeleted  Reason = "DeploymentDeleted"
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
	ReasonRunSucceeded      Reason = "Succeeded"
	ReasonTargetsFailed     Reason = "TargetsFailed"
	ReasonTerminatedByUser  Reason = "TerminatedByUser"
	ReasonSuperseded        Reason = "Superseded"
	ReasonTimedOut          Reason = "TimedOut"
	ReasonRevisionNotKept   Reason = "RevisionNotKept"
)

// Reasons of agents.
const (
	ReasonAgentConnected      Reason = "AgentConnected"
	ReasonAgentEnrolled       Reason = "AgentEnrolled"
	ReasonAgentUninstalling   Reason = "AgentUninstalling"
	ReasonAgentWarning        Reason = "AgentWarning"
	ReasonConfigNotLive       Reason = "ConfigNotLive"
	ReasonClockSkew           Reason = "ClockSkew"
	ReasonCapabilitiesChanged Reason = "CapabilitiesChanged"
	ReasonTokenRotated        Reason = "TokenRotated"
	ReasonTokenRotationFailed Reason = "TokenRotationFailed"
	ReasonNotKeptOffline      Reason = "NotKeptOffline"
)

// Reasons of findings of kedge doctor that are no state of one resource.
const (
	ReasonSourceInvalid Reason = "SourceInvalid"
	ReasonSyncFailed    Reason = "SyncFailed"
	ReasonUnhealthy     Reason = "Unhealthy"
	ReasonStale         Reason = "Stale"
)
