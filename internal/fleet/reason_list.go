package fleet

// ReasonInfo documents a reason.
type ReasonInfo struct {
	Reason Reason
	Cause  string // one or two sentences
	Remedy string // what the user does next
}

// ReasonGroup is the reasons of one kind of thing.
type ReasonGroup struct {
	Title   string
	Reasons []ReasonInfo
}

// Reasons returns every reason, in the order of the documentation.
func Reasons() []ReasonGroup { return reasonGroups }

// Info returns the documentation of a reason; ok is false for one that is not in the list.
func (r Reason) Info() (info ReasonInfo, ok bool) {
	for _, g := range reasonGroups {
		for _, info := range g.Reasons {
			if info.Reason == r {
				return info, true
			}
		}
	}
	return ReasonInfo{}, false
}

var reasonGroups = []ReasonGroup{
	{"Objects and targets", []ReasonInfo{
		{ReasonSynced, "The cluster matches the source.", "No action is needed."},
		{ReasonApplying, "The agent is applying the object or is about to.", "Wait. If it takes long, check the logs of the agent."},
		{ReasonDependencyNotReady, "The object waits for another object of an earlier wave to be ready.", "Check the object that the message names."},
		{ReasonNotReported, "The agent has not reported this target yet.", "Wait. If the agent is connected and nothing arrives, check its logs."},
		{ReasonDeleted, "The agent deleted every object of the target.", "No action is needed."},
		{ReasonDetached, "The target left its environment. Its objects stay in the cluster, and Kedge does not manage them any more.", "Deploy them again to manage them, or delete them with kubectl."},
		{ReasonDryRun, "The policy previewOnly is set. The agent reports the changes and makes none.", "Clear previewOnly to apply the changes."},
		{ReasonDryRunFailed, "The API server rejected the object in a dry run.", "Correct the object as the message says."},
		{ReasonDrifted, "The object was changed in the cluster, and the drift policy is report.", "Revert the change, change the source, or set the drift policy to correct."},
		{ReasonDriftHealed, "The object was changed or deleted in the cluster, and the agent restored it.", "Find who changes it if that repeats."},
		{ReasonDriftRepeats, "Another client keeps changing the object. The agent restores it less and less often.", "Stop the other client, or add the field to the ignore list."},
		{ReasonReplacing, "The object has an immutable field that changed. The agent deletes and creates it, as the policy replace allows.", "Wait."},
		{ReasonReplaced, "The agent deleted and created an object whose immutable field changed.", "No action is needed."},
		{ReasonNotWatched, "The agent may not watch the kind, so it notices drift and health late.", "Grant the agent list and watch for the kind."},
		{ReasonNotReadable, "The agent cannot read the object now, so its state is unknown.", "Check the API server and the permissions of the agent."},
		{ReasonObjectsFailed, "At least one object of the target failed.", "See the reasons of the objects."},
		{ReasonAdopted, "The agent took over an existing object, as the policy adopt allows.", "If the message names another tool, remove the object from that tool."},
		{ReasonTakenOver, "The agent took over an object of an earlier target of the deployment.", "No action is needed."},
		{ReasonForced, "The agent took over fields of another field manager, as the policy force allows.", "Make sure that the other manager does not set them again."},
	}},
	{"Objects that cannot be applied", []ReasonInfo{
		{ReasonApplyFailed, "The API server rejected the object.", "Correct the object as the message says. The agent retries."},
		{ReasonForbidden, "RBAC does not allow the agent, or the service account of the deployment, to change the object.", "Grant the permission that the message names."},
		{ReasonInvalid, "The object does not pass the validation of the API server.", "Correct the field that the message names."},
		{ReasonAdmissionDenied, "An admission webhook or policy of the cluster denied the object.", "Change the object, or the admission policy."},
		{ReasonFieldConflict, "Another field manager owns a field that the source sets.", "Remove the field from one of the two, or set the policy force."},
		{ReasonImmutableField, "The source changes a field that cannot be changed in place.", "Set the policy replace to delete and create the object, or revert the field."},
		{ReasonKindNotFound, "The cluster does not serve the kind.", "Install its CustomResourceDefinition, or add it to the source."},
		{ReasonNamespaceNotFound, "The namespace of the object does not exist.", "Create the namespace, add it to the source, or set the policy createNamespace."},
		{ReasonNotAdopted, "An object of the same name exists that Kedge did not create.", "Set the policy adopt, or delete or rename the object."},
		{ReasonOwnedByOther, "Another deployment or agent owns the object.", "Remove the object from one of the two sources."},
		{ReasonOutsideScope, "The agent is limited to namespaces, and the object is in none of them.", "Move the object, or extend the namespaces of the agent."},
		{ReasonOwnerPolicy, "The policy file of the cluster's owner forbids the object.", "Ask the owner of the cluster."},
		{ReasonOwnInstallation, "The object belongs to the installation of the agent, which the agent never changes.", "Change the installation with kubectl or Helm."},
		{ReasonGrantViolation, "The grant of the environment does not allow the object.", "Remove the object from the source, or ask the owner of the environment to extend the grant."},
		{ReasonClusterUnavailable, "The API server of the cluster did not answer or was overloaded.", "Wait. The agent retries."},
	}},
	{"Objects that left the source", []ReasonInfo{
		{ReasonPruning, "The agent is deleting the object.", "Wait."},
		{ReasonPruned, "The agent deleted an object that left the source.", "No action is needed."},
		{ReasonPruneTimeout, "The deletion takes longer than the policy pruneTimeout allows.", "Check the finalizers that the message names."},
		{ReasonPruneFailed, "The API server rejected the deletion.", "Correct the cause that the message names. The agent retries."},
		{ReasonPruneHeld, "The agent keeps objects that left the source until you confirm their deletion.", "Review them with kedge deploy prunes NAME and confirm them."},
		{ReasonOverPruneLimit, "More objects left the source at once than the policy pruneLimit allows.", "Review them with kedge deploy prunes NAME and confirm them, or revert the commit."},
		{ReasonProtectedKind, "The kind is protected. Kedge deletes such an object only after you confirm it by name.", "Confirm it by name, or delete it with kubectl."},
		{ReasonHeldAfterRecovery, "The object was missing from the source when the server recovered from a backup or the agent was enrolled again.", "Confirm the deletion, or add the object to the source."},
		{ReasonPruneDisabled, "Pruning is off for the deployment or for the object.", "Delete the object with kubectl, or set the policy prune."},
		{ReasonPruneBlocked, "Other objects of the target could not be applied. The agent prunes nothing until they are.", "Correct the objects that failed."},
		{ReasonBundleIncomplete, "The agent has not received the complete bundle.", "Wait."},
		{ReasonBundleEmpty, "The source has no object, and the deployment does not allow that.", "Set the policy allowEmpty if it is intended."},
		{ReasonInventoryDamaged, "A ConfigMap of the agent's inventory is unreadable, so the agent deletes nothing of the target.", "Restore the ConfigMap that the message names, or delete the inventory of the target and restart the agent."},
		{ReasonNoInventory, "The agent has no inventory of a target that it should delete, so it deletes nothing.", "Delete the objects with kubectl if they still exist."},
		{ReasonWaitingForDeployments, "Other deployments of the agent have not arrived yet and may contain the object.", "Wait."},
		{ReasonHandOverPending, "Another deployment of the agent contains the object, or may, and has not taken it over yet.", "Check the deployment that the message names."},
		{ReasonHandedOver, "Another deployment took over the object.", "No action is needed."},
		{ReasonReleased, "The agent kept the object when its deployment was deleted.", "Delete it with kubectl if you do not need it."},
		{ReasonNotPruned, "The agent did not delete an object because it no longer belongs to the target.", "No action is needed."},
	}},
	{"Health of objects", []ReasonInfo{
		{ReasonProgressing, "The object is not ready yet.", "Wait."},
		{ReasonReadyTimeout, "The object was not ready within the policy readyTimeout.", "Check the workload. The message says what is not ready."},
		{ReasonHealthCheckFailed, "The status of the object reports a failure.", "Check the object as the message says."},
		{ReasonTerminating, "The object is being deleted.", "Check its finalizers if it takes long."},
		{ReasonNotFound, "The object does not exist in the cluster.", "Wait for the agent to create it."},
		{ReasonPodsNotReady, "Pods of the workload are not ready for another reason.", "Check the pods that the message names."},
		{ReasonImagePullBackOff, "The image of a container cannot be pulled.", "Check the image name, the registry and the pull secret."},
		{ReasonInvalidImageName, "The image name of a container is invalid.", "Correct the image name."},
		{ReasonCrashLoopBackOff, "A container exits again and again.", "Check its logs with kubectl logs --previous."},
		{ReasonOOMKilled, "A container used more memory than its limit.", "Raise the limit, or reduce the use of memory."},
		{ReasonCreateContainerConfigError, "A ConfigMap or Secret that a container refers to is missing or incomplete.", "Create it, or correct the reference."},
		{ReasonUnschedulable, "No node fits a pod.", "Check resources, affinity, taints and volumes."},
		{ReasonFailedCreate, "The controller of the workload cannot create pods.", "Check quotas, pod security and the service account."},
	}},
	{"Targets", []ReasonInfo{
		{ReasonAgentDisconnected, "The agent is not connected. The last known state is shown as Stale.", "Check the agent and its network."},
		{ReasonAgentNeverConnected, "The agent has never connected.", "Apply the manifest of kedge agent manifest NAME."},
		{ReasonAgentDeleted, "The agent of the target was deleted.", "Enroll an agent of the same name in the same cluster, or delete the target with kedge agent dismiss."},
		{ReasonRewound, "The agent has a newer state than the server, because a backup was restored. Nothing is deleted until you confirm it.", "Review the held deletions with kedge deploy prunes NAME."},
		{ReasonVersionRefused, "The agent reports a version that no server can have sent.", "Check the inventory ConfigMap of the target in the agent's namespace."},
		{ReasonBundleUnavailable, "The agent cannot fetch the bundle of the target.", "Check the logs of the agent and the network between agent and server."},
		{ReasonLabelMissing, "The source refers to a label that the agent does not have.", "Set the label on the agent, or change the source."},
		{ReasonNewRevisionWaits, "A newer revision is rendered and not sent.", "See the reason for which the deployment is held: Suspended, Pinned or Manual."},
		{ReasonManual, "The deployment is manual. A newer revision waits for a sync run.", "Run kedge sync NAME."},
		{ReasonSuspended, "The deployment is suspended.", "Run kedge deploy resume NAME."},
		{ReasonEnvironmentSuspended, "The environment is suspended.", "Run kedge env resume NAME."},
		{ReasonTenantSuspended, "The tenant is suspended.", "Run kedge tenant resume NAME."},
		{ReasonFleetFrozen, "The whole fleet is frozen.", "A fleet admin runs kedge fleet unfreeze."},
		{ReasonPinned, "A rollback pinned the deployment to a revision.", "Run kedge deploy release NAME to follow the source again."},
		{ReasonTargetAttached, "The agent joined the environment of the deployment.", "No action is needed."},
		{ReasonTargetDetached, "The agent left the environment of the deployment. Its objects stay.", "No action is needed."},
		{ReasonTargetDeleted, "The agent deleted the objects of a target.", "No action is needed."},
		{ReasonDeletionAbandoned, "A target was removed although its agent had not confirmed the deletion of its objects.", "Delete the objects with kubectl if they still exist."},
	}},
	{"Deployments and pending specs", []ReasonInfo{
		{ReasonAvailable, "Every target is synced and healthy.", "No action is needed."},
		{ReasonNoAgents, "No agent matches: the tenant has none, or the environment selects none.", "Enroll an agent, or change the environment."},
		{ReasonDeleting, "The deployment is being deleted and waits for its agents.", "Wait. kedge agent dismiss removes targets of agents that are gone for good."},
		{ReasonRendered, "The newest revision is rendered.", "No action is needed."},
		{ReasonRevisionRendered, "A new revision was rendered.", "No action is needed."},
		{ReasonRenderNote, "The renderer ignored something in the source.", "See the message."},
		{ReasonSourceNotRead, "The server has not read the source yet.", "Wait."},
		{ReasonSourceUnreadable, "The repository of the source cannot be read.", "See the reason of the repository."},
		{ReasonSourceNotRendered, "The source of a new spec cannot be rendered. The spec in force continues.", "Correct the source or the spec as the message says."},
		{ReasonRevisionNotFound, "The repository has no such branch, tag or commit.", "Correct the revision of the deployment."},
		{ReasonPathNotFound, "The path does not exist in the revision.", "Correct the path of the deployment, or push the folder."},
		{ReasonRenderFailed, "The source cannot be rendered. What runs continues to run.", "Correct the file that the message names and push."},
		{ReasonSourceEmpty, "The source renders to no object, and the deployment does not allow that.", "Correct the source, or set the policy allowEmpty."},
		{ReasonSignatureInvalid, "The commit or tag is not signed by a signer of the repository.", "Sign it, or change the signers of the repository."},
		{ReasonSpecRefused, "A quota, a grant, a suspension or the environment does not allow the new spec.", "See the message."},
		{ReasonSpecInForce, "A new spec came into force.", "No action is needed."},
		{ReasonQuotaExceeded, "The tenant has reached a quota.", "Delete something, or ask a fleet admin to raise the quota."},
		{ReasonCommitNotEvaluated, "A commit is not evaluated for every deployment yet.", "Wait."},
		{ReasonDeploymentCreated, "A user created the deployment.", "No action is needed."},
		{ReasonDeploymentUpdated, "A user changed the deployment.", "No action is needed."},
		{ReasonDeploymentDeleted, "The deployment was deleted.", "No action is needed."},
	}},
	{"Repositories", []ReasonInfo{
		{ReasonRepositoryReadable, "The repository can be read.", "No action is needed."},
		{ReasonRepositoryUnreadable, "The repository cannot be read.", "See the message. The server retries."},
		{ReasonRepositoryNotReadable, "The repository does not exist, or the credential may not read it.", "Check the URL and the credential."},
		{ReasonRepositoryUnused, "The repository cannot be read, and no deployment uses it.", "Run kedge repo delete URL."},
		{ReasonHostUnknown, "The name of the Git host has no address.", "Check the URL and DNS."},
		{ReasonHostDenied, "The address policy of the server does not allow the Git host.", "Ask the operator of the server."},
		{ReasonHostKeyUnknown, "The SSH host key is not among the known hosts of the credential.", "Add the host key to the credential."},
		{ReasonRedirected, "The Git host redirects to another URL.", "Use the final URL."},
		{ReasonNotGit, "No Git repository answers at the URL.", "Check the URL."},
		{ReasonCredentialUnusable, "The transport needs a credential, or cannot use this one.", "Set a credential of the right kind."},
		{ReasonNotChecked, "The server has not read the repository yet.", "Wait."},
	}},
	{"Sync runs", []ReasonInfo{
		{ReasonWaitsForTurn, "Another run of the deployment comes first.", "Wait, or terminate the other run."},
		{ReasonReadingSource, "The server is reading the repository.", "Wait."},
		{ReasonSpecPending, "An edit of the deployment is not in force yet.", "See the pending spec of the deployment."},
		{ReasonWaitingForTargets, "The run waits for targets to apply the revision.", "See kedge run get."},
		{ReasonRunSucceeded, "Every target applied the revision.", "No action is needed."},
		{ReasonTargetsFailed, "At least one target could not apply the revision.", "See the reasons of the targets."},
		{ReasonTerminatedByUser, "A user terminated the run.", "No action is needed."},
		{ReasonSuperseded, "A newer run or a rollback replaced the run.", "No action is needed."},
		{ReasonTimedOut, "The run did not finish in time.", "See the reasons of the targets."},
		{ReasonRevisionNotKept, "The revision of the rollback is no longer kept.", "Choose a revision of kedge deploy revisions NAME."},
	}},
	{"Agents", []ReasonInfo{
		{ReasonAgentConnected, "The agent is connected.", "No action is needed."},
		{ReasonAgentEnrolled, "A user enrolled the agent.", "No action is needed."},
		{ReasonAgentUninstalling, "The agent is being uninstalled: its objects are being deleted.", "Wait."},
		{ReasonAgentWarning, "The agent works, and something needs attention: another version, several clusters or a failed operation.", "See the message."},
		{ReasonConfigNotLive, "The configuration file of the agent in Git is invalid or cannot be applied. The previous one stays in force.", "Run kedge agent config get NAME and correct the file."},
		{ReasonClockSkew, "The clocks of agent and server differ.", "Synchronize the clocks."},
		{ReasonCapabilitiesChanged, "The cluster serves other APIs or another version than before.", "No action is needed."},
		{ReasonTokenRotated, "The agent has a new token.", "No action is needed."},
		{ReasonTokenRotationFailed, "The agent could not store a new token.", "See the message. The old token stays valid."},
		{ReasonNotKeptOffline, "A deployment does not fit into the offline cache of the agent.", "Raise --offline-budget of the agent."},
	}},
	{"Findings of kedge doctor", []ReasonInfo{
		{ReasonSourceInvalid, "The source of a deployment cannot be used.", "See the message of the deployment."},
		{ReasonSyncFailed, "Targets of a deployment failed.", "See the reasons of the targets."},
		{ReasonUnhealthy, "Objects of a deployment are not healthy.", "See the reasons of the objects."},
		{ReasonStale, "Agents of a deployment are not connected.", "Check the agents."},
	}},
}
