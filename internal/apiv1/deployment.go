package apiv1

import "time"

// Source is the origin of the objects of a deployment.
type Source struct {
	RepoURL  string   `json:"repoURL" doc:"URL of a Git repository."`
	Path     string   `json:"path,omitempty" doc:"Folder in the repository; its root if absent."`
	Revision string   `json:"revision,omitempty" doc:"Branch, tag, or commit; the default branch if absent."`
	Kind     string   `json:"kind,omitempty" enum:"plain,kustomize,helm" doc:"How the files are rendered; detected from the files in the folder if absent."`
	Detected string   `json:"detected,omitempty" readOnly:"true" doc:"The kind detected in the newest commit, if kind is not set."`
	Globs    []string `json:"globs,omitempty" nullable:"false" doc:"For plain manifests: the files below the path; every manifest if absent."`
	Helm     *Helm    `json:"helm,omitempty" doc:"Settings for charts."`
	// Variables replace ${name} in the objects.
	Variables map[string]string `json:"variables,omitempty" doc:"Replace ${name} in the objects. Variables, path, and helm settings may use {agent.name} and {agent.labels.KEY}."`
}

// Helm has the settings of a chart.
type Helm struct {
	ReleaseName string         `json:"releaseName,omitempty" doc:"The name of the deployment if absent."`
	ValuesFiles []string       `json:"valuesFiles,omitempty" nullable:"false" doc:"Files in the repository, relative to the path, or relative to the root if they start with a slash. Later files take precedence."`
	Values      map[string]any `json:"values,omitempty" doc:"Values that take precedence over the files; at most 64 KiB."`
	SkipCRDs    bool           `json:"skipCRDs,omitempty" doc:"Skip the folder crds of the chart."`
	Set         []HelmSet      `json:"set,omitempty" nullable:"false" doc:"Change single values, in this order. They take precedence over values. At most 64 KiB together with values."`
}

// HelmSet sets one or more values of a chart, in the syntax of Helm's --set flags.
type HelmSet struct {
	Type       string `json:"type,omitempty" enum:"value,string,json" doc:"Types the values like Helm's --set, --set-string, or --set-json. Default: value."`
	Expression string `json:"expression" doc:"For example, image.tag=1.10 or hosts[0].name=a,hosts[1].name=b."`
}

// UpdateSource changes a Source. Absent fields do not change.
type UpdateSource struct {
	RepoURL   *string           `json:"repoURL,omitempty"`
	Path      *string           `json:"path,omitempty" doc:"Empty for the root of the repository."`
	Revision  *string           `json:"revision,omitempty" doc:"Empty for the default branch."`
	Kind      *string           `json:"kind,omitempty" doc:"plain, kustomize, or helm; empty means detected."`
	Globs     []string          `json:"globs,omitzero" nullable:"false" doc:"Replaces all globs; [] means every manifest."`
	Helm      *Helm             `json:"helm,omitempty" doc:"Replaces all settings; {} removes them."`
	Variables map[string]string `json:"variables,omitzero" doc:"Replaces all variables; {} removes them."`
}

// CreateDeployment is the request for a new deployment.
type CreateDeployment struct {
	Name        string            `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Labels      map[string]string `json:"labels,omitempty"`
	Source      Source            `json:"source"`
	Environment string            `json:"environment,omitempty" doc:"The environment; 'default' if absent. An environment granted by another tenant is OWNER/NAME."`
	Namespace   string            `json:"namespace,omitempty" doc:"Namespace of objects that have none; 'default' if absent."`
	Policy      NewPolicy         `json:"policy,omitzero"`
}

// UpdateDeployment changes a deployment. Absent fields do not change.
type UpdateDeployment struct {
	Labels      map[string]string `json:"labels,omitzero" doc:"Replaces all labels; {} removes them."`
	Source      UpdateSource      `json:"source,omitzero"`
	Environment *string           `json:"environment,omitempty"`
	Namespace   *string           `json:"namespace,omitempty"`
	Policy      UpdatePolicy      `json:"policy,omitzero"`
}

// Deployment is a source, an environment, and a policy, with the status of its targets. It has more than 20 fields because
// clients read it whole: spec, status and the newest operations in one response.
type Deployment struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Labels are the labels of the deployment, not of its objects.
	Labels          map[string]string `json:"labels,omitempty"`
	Source          Source            `json:"source"`
	Repository      string            `json:"repository,omitempty" doc:"ID of the repository."`
	Environment     string            `json:"environment"`
	Namespace       string            `json:"namespace"`
	Policy          Policy            `json:"policy"`
	Commit          string            `json:"commit,omitempty" doc:"The newest commit that was rendered completely."`
	Digest          string            `json:"digest,omitempty" doc:"Digest of the objects of that commit."`
	EvaluatedCommit string            `json:"evaluatedCommit,omitempty" doc:"The newest commit of its revision that was evaluated. Newer than 'commit' if later commits change nothing in the deployment. Only set when you read one deployment."`
	RunningCommit   string            `json:"runningCommit,omitempty" doc:"The commit that most of its targets have; an older one while a newer revision is held back."`
	RunningOther    int               `json:"runningOther,omitempty" doc:"Number of targets that have another commit."`
	RenderedAt      time.Time         `json:"renderedAt,omitzero"`
	Suspension      *Suspension       `json:"suspension,omitempty" doc:"Set while the deployment itself is suspended. Its environment, its tenant, and the fleet can be suspended too."`
	Pin             *Pin              `json:"pin,omitempty" doc:"Set while a rollback holds it at a kept revision."`
	SpecRevision    int64             `json:"specRevision" doc:"Rises with each edit; the number in the ETag."`
	Volatile        bool              `json:"volatile,omitempty" doc:"The chart uses time or randomness: it is rendered again only when its input changes."`
	SourceReason    string            `json:"sourceReason,omitempty" doc:"Identifier of sourceError; see docs/reasons.md."`
	SourceError     string            `json:"sourceError,omitempty" doc:"Why the newest revision could not be used. The running revision is not affected."`
	CreatedAt       time.Time         `json:"createdAt,omitzero"`
	DeletedAt       time.Time         `json:"deletedAt,omitzero" doc:"Set while its objects are being deleted."`
	Sync            string            `json:"sync" doc:"Pending, Syncing, Synced, OutOfSync, Failed, Deleted, Detached, or Rewound: the worst state of its targets, not counting agents that never connected."`
	Health          string            `json:"health" doc:"A kstatus status, or Stale: the worst health of its targets, not counting agents that never connected."`
	Reason          string            `json:"reason" doc:"Identifier of the state; see docs/reasons.md."`
	Message         string            `json:"message,omitempty"`
	Conditions      []Condition       `json:"conditions" nullable:"false" doc:"Synced, Healthy, SourceReady and, while new revisions are not sent, Held."`
	Counts          TargetCounts      `json:"counts" doc:"Number of targets in each state."`
	Targets         []Target          `json:"targets,omitempty" nullable:"false" doc:"The first targets, sorted by agent name. Only set when you read one deployment."`
	MoreTargets     string            `json:"moreTargets,omitempty" doc:"Set if there are more targets: pass it as 'after' to …/targets."`
	Pending         *PendingSpec      `json:"pending,omitempty" doc:"Set while the shown spec is not in force: its source is not rendered yet, and agents do not get it."`
	DeclaredBy      *DeclaredBy       `json:"declaredBy,omitempty" doc:"The file in Git that declares the deployment. Change the deployment only in that file."`
	ManagedBy       *ManagedBy        `json:"managedBy,omitempty" doc:"The Kubernetes resource that created the deployment. Change the deployment only there."`
	Held            *Cause            `json:"held,omitempty" doc:"Why no new revision is sent: it is suspended, pinned, or waits for a sync run."`
	Warnings        []string          `json:"warnings,omitempty" nullable:"false" doc:"Facts about the source that could not be checked. Only in the response to the request that stores it."`
	Operations      []Operation       `json:"operations,omitempty" nullable:"false" doc:"Running operations, and the newest failed one. Only set when you read one deployment."`
}

// Condition is one aspect of the state of a resource, in the form that Kubernetes uses.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status" enum:"True,False,Unknown"`
	Reason             string    `json:"reason" doc:"One word; see docs/reasons.md."`
	Message            string    `json:"message,omitempty"`
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero" doc:"When status last changed; absent when that is not known."`
	ObservedGeneration int64     `json:"observedGeneration,omitempty" doc:"The generation, or the revision of the spec, that it is about."`
}

// ManagedBy is the Kubernetes resource that created a resource of the server.
type ManagedBy struct {
	Kind         string    `json:"kind"`
	Namespace    string    `json:"namespace,omitempty"`
	Name         string    `json:"name"`
	UID          string    `json:"uid"`
	MissingSince time.Time `json:"missingSince,omitzero" doc:"Set while the Kubernetes resource is missing although nobody deleted it. Nothing was deleted."`
}

// String returns "Kind namespace/name".
func (m *ManagedBy) String() string {
	name := m.Name
	if m.Namespace != "" {
		name = m.Namespace + "/" + m.Name
	}
	if !m.MissingSince.IsZero() {
		name += " (missing)"
	}
	return m.Kind + " " + name
}

// Cause is a reason with the sentence that explains it.
type Cause struct {
	Reason  string `json:"reason" doc:"One word; see docs/reasons.md."`
	Message string `json:"message"`
}

// Text is the message; "" for no cause.
func (c *Cause) Text() string {
	if c == nil {
		return ""
	}
	return c.Message
}

// Deletion is what deleting a deployment would do, as far as its agents have told what they hold.
type Deletion struct {
	Clusters int `json:"clusters" doc:"Number of clusters that would delete objects."`
	Away     int `json:"away" doc:"Number of these clusters whose agent is not connected. They delete when it connects again."`
	Objects  int `json:"objects" doc:"Number of objects that would be deleted in all clusters."`
	Kept     int `json:"kept" doc:"Number of objects that would stay: Namespaces, CustomResourceDefinitions, and PersistentVolumeClaims."`
}

// PendingSpec explains why the newest spec of a deployment is not in force, and contains the spec in force. The
// status of the deployment describes the spec in force.
type PendingSpec struct {
	SpecRevision int64  `json:"specRevision" doc:"Spec revision of the pending spec."`
	Reason       string `json:"reason" enum:"SourceNotRead,SourceUnreadable,SourceNotRendered,SpecRefused" doc:"SourceNotRead: the source was not read yet. SourceUnreadable: Git cannot be read now. SourceNotRendered: the source does not render. SpecRefused: a quota, a grant, a suspension, or the environment forbids it."`
	Message      string `json:"message"`
	By           string `json:"by,omitempty" doc:"Name of the token or person that made the edit."`
	InForce      Spec   `json:"inForce" doc:"The spec that agents use."`
}

// Spec is the editable part of a deployment.
type Spec struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Source      Source            `json:"source"`
	Environment string            `json:"environment"`
	Namespace   string            `json:"namespace"`
	Policy      Policy            `json:"policy"`
}

// TargetCounts counts the targets of a deployment by state.
type TargetCounts struct {
	Targets        int            `json:"targets" doc:"Number of all targets."`
	Ready          int            `json:"ready" doc:"Number of connected targets that applied their desired state and are Current. A newer revision that is held back does not matter."`
	Detached       int            `json:"detached" doc:"Number of detached targets."`
	Stale          int            `json:"stale" doc:"Number of targets whose agent is not connected."`
	NeverConnected int            `json:"neverConnected" doc:"Number of targets whose agent never connected. Sync and health of the deployment ignore them if there are others."`
	StaleSince     time.Time      `json:"staleSince,omitzero" doc:"Since when the agent is not connected that has been away longest."`
	Sync           map[string]int `json:"sync" doc:"Number of targets by sync state; states without targets are absent."`
	Health         map[string]int `json:"health" doc:"Number of targets by health; values without targets are absent."`
	HeldPrunes     int            `json:"heldPrunes,omitempty" doc:"Number of deletions that wait for a confirmation. An object on two agents counts twice."`
}

// Pin holds a deployment at a kept revision until you release it.
type Pin struct {
	Revision      int64     `json:"revision" doc:"Number of the kept revision."`
	Commit        string    `json:"commit"`
	At            time.Time `json:"at,omitzero"`
	By            string    `json:"by,omitempty"`
	TerminatedRun int64     `json:"terminatedRun,omitempty" doc:"Number of the sync run that set the pin, if that run was terminated. Agents that had not finished it change nothing until the next run or a release."`
}

// Target is one deployment on one agent.
type Target struct {
	ID                 string      `json:"id"`
	Agent              string      `json:"agent"`
	Sync               string      `json:"sync"`
	Health             string      `json:"health"`
	Reason             string      `json:"reason" doc:"Identifier of the state; see docs/reasons.md."`
	Message            string      `json:"message,omitempty"`
	Conditions         []Condition `json:"conditions" nullable:"false" doc:"Synced and Healthy."`
	AsOf               time.Time   `json:"asOf,omitzero" doc:"Time of the last report of the agent; absent before the first."`
	StaleSince         time.Time   `json:"staleSince,omitzero" doc:"Set while the agent is not connected: the status may be outdated."`
	Generation         int64       `json:"generation" doc:"Generation of the desired state."`
	ObservedGeneration int64       `json:"observedGeneration" doc:"Generation that sync and health describe."`
	Commit             string      `json:"commit,omitempty" doc:"Commit of the desired state."`
	Tombstone          bool        `json:"tombstone,omitempty" doc:"True while its objects are being deleted because the deployment or target was deleted."`
	DetachedAt         time.Time   `json:"detachedAt,omitzero" doc:"When it left the environment. Its objects stay."`
	DetachedWhy        string      `json:"detachedWhy,omitempty"`
	HeldPrunes         int         `json:"heldPrunes,omitempty" doc:"Number of its objects that left the source and wait for a confirmation of their deletion."`
	Objects            []Object    `json:"objects,omitempty" nullable:"false" doc:"Only set when you read one target, or a deployment with few targets."`
}

// Object is the status of one Kubernetes object of a target.
type Object struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Sync      string `json:"sync"`
	Health    string `json:"health"`
	Reason    string `json:"reason,omitempty" doc:"Identifier of the state; see docs/reasons.md."`
	Message   string `json:"message,omitempty"`
}

// Event is something that happened.
type Event struct {
	Seq        int64     `json:"seq"`
	At         time.Time `json:"at,omitzero"`
	Type       string    `json:"type" enum:"Normal,Warning"`
	Reason     string    `json:"reason"`
	Agent      string    `json:"agent,omitempty"`
	Deployment string    `json:"deployment,omitempty"`
	Object     string    `json:"object,omitempty"`
	Message    string    `json:"message"`
}

// Change is one record of the stream: a resource changed, and you may read it again.
type Change struct {
	Seq          int64     `json:"seq"`
	Kind         string    `json:"kind" doc:"agent, connection, token, environment, repository, deployment, desired, status, event, tenant, settings, credential, run, operation or agentconfig."`
	ID           string    `json:"id,omitempty"`
	AgentID      string    `json:"agentId,omitempty"`
	DeploymentID string    `json:"deploymentId,omitempty"`
	At           time.Time `json:"at,omitzero"`
}

// Problem is an error response (RFC 9457).
type Problem struct {
	Title  string          `json:"title,omitempty"`
	Status int             `json:"status,omitempty"`
	Detail string          `json:"detail,omitempty"`
	Errors []ProblemDetail `json:"errors,omitempty"`
	ProblemMembers
}

// ProblemMembers are the members of Problem that RFC 9457 does not define.
type ProblemMembers struct {
	Reason  string `json:"reason,omitempty" doc:"One word; see docs/reasons.md. Absent if the status says everything."`
	Message string `json:"message,omitempty" doc:"What happened, without the remedy, which names requests of this API. Absent if detail has no such remedy."`
	List    string `json:"list,omitempty" doc:"Path of the list of such resources, if the resource of the request was not found or already exists."`
}

// ProblemDetail is one error in a request.
type ProblemDetail struct {
	Message  string `json:"message,omitempty"`
	Location string `json:"location,omitempty"`
}
