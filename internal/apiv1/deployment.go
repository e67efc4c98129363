package apiv1

import "time"

// Source says where the objects of a deployment come from.
type Source struct {
	RepoURL  string   `json:"repoURL" doc:"URL of a Git repository."`
	Path     string   `json:"path,omitempty" doc:"Folder in the repository; its root when absent."`
	Revision string   `json:"revision,omitempty" doc:"Branch, tag or commit; the default branch when absent."`
	Kind     string   `json:"kind,omitempty" enum:"plain,kustomize,helm" doc:"How the files become objects; detected by what the folder holds when absent."`
	Detected string   `json:"detected,omitempty" readOnly:"true" doc:"What the folder holds in the newest commit, where kind does not say it."`
	Globs    []string `json:"globs,omitempty" nullable:"false" doc:"For plain manifests: which files below the path; every manifest when absent."`
	Helm     *Helm    `json:"helm,omitempty" doc:"For charts."`
	// Variables replace ${name} in the objects.
	Variables map[string]string `json:"variables,omitempty" doc:"Replace ${name} in the objects; they, the path and what helm says may use {agent.name} and {agent.labels.KEY}."`
}

// Helm says how a chart is rendered.
type Helm struct {
	ReleaseName string         `json:"releaseName,omitempty" doc:"The name of the deployment when absent."`
	ValuesFiles []string       `json:"valuesFiles,omitempty" nullable:"false" doc:"Files in the repository, relative to the path, or from its root when they begin with a slash; later ones win."`
	Values      map[string]any `json:"values,omitempty" doc:"Win over the files; at most 64 KiB."`
	SkipCRDs    bool           `json:"skipCRDs,omitempty" doc:"Leave out the folder crds of the chart."`
	Set         []HelmSet      `json:"set,omitempty" nullable:"false" doc:"Change single values, in this order; win over values. At most 64 KiB together with values."`
}

// HelmSet is one value of a chart, or several, in the syntax of Helm's command line.
type HelmSet struct {
	Type       string `json:"type,omitempty" enum:"value,string,json" doc:"As --set, --set-string or --set-json of Helm types values; value when absent."`
	Expression string `json:"expression" doc:"Such as image.tag=1.10 or hosts[0].name=a,hosts[1].name=b."`
}

// UpdateSource changes a Source; what is absent stays as it is.
type UpdateSource struct {
	RepoURL   *string           `json:"repoURL,omitempty"`
	Path      *string           `json:"path,omitempty" doc:"Empty for the root of the repository."`
	Revision  *string           `json:"revision,omitempty" doc:"Empty for the default branch."`
	Kind      *string           `json:"kind,omitempty" doc:"plain, kustomize or helm; empty means that it is detected."`
	Globs     []string          `json:"globs,omitzero" nullable:"false" doc:"All of them from now on; [] means every manifest."`
	Helm      *Helm             `json:"helm,omitempty" doc:"All of it from now on; {} removes it."`
	Variables map[string]string `json:"variables,omitzero" doc:"All of them from now on; {} removes them."`
}

// CreateDeployment asks for a new deployment.
type CreateDeployment struct {
	Name        string            `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Labels      map[string]string `json:"labels,omitempty"`
	Source      Source            `json:"source"`
	Environment string            `json:"environment,omitempty" doc:"Where to deploy to; the environment 'default' when absent. One that another tenant has granted is OWNER/NAME."`
	Namespace   string            `json:"namespace,omitempty" doc:"For objects that name none; 'default' when absent."`
	Policy      NewPolicy         `json:"policy,omitzero"`
}

// UpdateDeployment changes a deployment; what is absent stays as it is.
type UpdateDeployment struct {
	Labels      map[string]string `json:"labels,omitzero" doc:"All labels from now on; {} removes them."`
	Source      UpdateSource      `json:"source,omitzero"`
	Environment *string           `json:"environment,omitempty"`
	Namespace   *string           `json:"namespace,omitempty"`
	Policy      UpdatePolicy      `json:"policy,omitzero"`
}

// Deployment is a source, a destination and a policy, and how it is doing on its targets.
type Deployment struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Labels are the deployment's own, not those of its objects.
	Labels          map[string]string `json:"labels,omitempty"`
	Source          Source            `json:"source"`
	Repository      string            `json:"repository,omitempty" doc:"ID of the repository."`
	Environment     string            `json:"environment"`
	Namespace       string            `json:"namespace"`
	Policy          Policy            `json:"policy"`
	Commit          string            `json:"commit,omitempty" doc:"The newest commit that was rendered whole."`
	Digest          string            `json:"digest,omitempty" doc:"Names the objects of that commit."`
	EvaluatedCommit string            `json:"evaluatedCommit,omitempty" doc:"Up to which commit of its revision it was evaluated. Newer than 'commit' when what came since changes nothing of it. Only when one deployment is read."`
	RunningCommit   string            `json:"runningCommit,omitempty" doc:"The commit that most of its targets were sent: an older one while a newer revision is held back."`
	RunningOther    int               `json:"runningOther,omitempty" doc:"How many targets were sent another commit than that."`
	RenderedAt      time.Time         `json:"renderedAt,omitzero"`
	Suspension      *Suspension       `json:"suspension,omitempty" doc:"Set while it is suspended itself; its environment, tenant and the fleet can be too."`
	Pin             *Pin              `json:"pin,omitempty" doc:"Set while it is held at a kept revision, after a rollback."`
	Spec            int64             `json:"spec" doc:"Rises with every edit; the number in the ETag."`
	Volatile        bool              `json:"volatile,omitempty" doc:"The chart uses time or randomness: it is rendered again only when what it reads has changed."`
	SourceReason    string            `json:"sourceReason,omitempty" doc:"Identifies sourceError."`
	SourceError     string            `json:"sourceError,omitempty" doc:"Why the newest revision could not be used; what runs is undisturbed."`
	CreatedAt       time.Time         `json:"createdAt,omitzero"`
	DeletedAt       time.Time         `json:"deletedAt,omitzero" doc:"Set while its objects are being deleted."`
	Sync            string            `json:"sync" doc:"Pending, Syncing, Synced, OutOfSync, Failed, Deleted, Detached or Rewound: the worst of its targets, but for those whose agents have never connected."`
	Health          string            `json:"health" doc:"In the words of kstatus, or Stale: the worst of its targets, but for those whose agents have never connected."`
	Reason          string            `json:"reason" doc:"Identifies the state in one word; see docs/reasons.md."`
	Message         string            `json:"message,omitempty"`
	Counts          TargetCounts      `json:"counts" doc:"How many of its targets are in which state."`
	Targets         []Target          `json:"targets,omitempty" nullable:"false" doc:"The first ones, by the names of their agents; only when one deployment is read."`
	MoreTargets     string            `json:"moreTargets,omitempty" doc:"Set when there are more: pass it as 'after' to …/targets to read on."`
	Pending         *PendingSpec      `json:"pending,omitempty" doc:"Set while the spec that is shown is not in force: its source is not rendered yet, and agents get nothing of it."`
	DeclaredBy      *DeclaredBy       `json:"declaredBy,omitempty" doc:"The file in Git that declares it: then it is changed there and nowhere else."`
	Held            string            `json:"held,omitempty" doc:"Why nothing new is sent: it is suspended, pinned, or waits for a sync run."`
	Warnings        []string          `json:"warnings,omitempty" nullable:"false" doc:"What could not be found out about the source; only in the answer to the request that stores it."`
	Operations      []Operation       `json:"operations,omitempty" nullable:"false" doc:"What goes on, and the newest that failed; only when one deployment is read."`
}

// Deletion is what deleting a deployment would do, as far as its agents have told what they hold.
type Deletion struct {
	Clusters int `json:"clusters" doc:"Clusters with a target that would be told to delete."`
	Away     int `json:"away" doc:"Of these, how many agents are not connected: they delete when they are back."`
	Objects  int `json:"objects" doc:"Objects that would be deleted, over all clusters."`
	Kept     int `json:"kept" doc:"Objects that stay all the same: Namespaces, CustomResourceDefinitions and PersistentVolumeClaims."`
}

// PendingSpec says why the newest spec of a deployment is not in force, and what is. What a deployment runs, and how,
// is of the spec in force.
type PendingSpec struct {
	Spec    int64  `json:"spec" doc:"The spec that waits."`
	Reason  string `json:"reason" enum:"SourceNotRead,SourceUnreadable,SourceNotRendered,SpecRefused" doc:"SourceNotRead: nobody has looked yet. SourceUnreadable: Git cannot be read now. SourceNotRendered: the source cannot be used as it is. SpecRefused: a quota, a grant, a suspension or its environment forbids it."`
	Message string `json:"message"`
	By      string `json:"by,omitempty" doc:"Who asked for it."`
	InForce Spec   `json:"inForce" doc:"The spec that agents have."`
}

// Spec is what can be edited of a deployment.
type Spec struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Source      Source            `json:"source"`
	Environment string            `json:"environment"`
	Namespace   string            `json:"namespace"`
	Policy      Policy            `json:"policy"`
}

// TargetCounts is how many targets of a deployment are in which state.
type TargetCounts struct {
	Targets        int            `json:"targets" doc:"All of them."`
	Ready          int            `json:"ready" doc:"Hold what was sent to them, and are Current, now. A newer revision that is held back does not count against them."`
	Detached       int            `json:"detached" doc:"Were let go."`
	Stale          int            `json:"stale" doc:"Their agents are not connected."`
	NeverConnected int            `json:"neverConnected" doc:"Their agents have never connected. Sync and health of the deployment are those of the others, if there are any."`
	StaleSince     time.Time      `json:"staleSince,omitzero" doc:"The longest absence."`
	Sync           map[string]int `json:"sync" doc:"How many by state; one that no target is in is absent."`
	Health         map[string]int `json:"health" doc:"The same by health."`
	HeldPrunes     int            `json:"heldPrunes,omitempty" doc:"Deletions that wait to be confirmed: an object on two agents counted twice."`
}

// Pin holds a deployment at a kept revision until it is released.
type Pin struct {
	Revision      int64     `json:"revision" doc:"Number of the kept revision."`
	Commit        string    `json:"commit"`
	At            time.Time `json:"at,omitzero"`
	By            string    `json:"by,omitempty"`
	TerminatedRun int64     `json:"terminatedRun,omitempty" doc:"Number of the sync run that has brought it, if that run was terminated. Agents that had not finished it change nothing until the next run or a release."`
}

// Target is one deployment on one agent.
type Target struct {
	ID                 string    `json:"id"`
	Agent              string    `json:"agent"`
	Sync               string    `json:"sync"`
	Health             string    `json:"health"`
	Reason             string    `json:"reason" doc:"Identifies the state in one word; see docs/reasons.md."`
	Message            string    `json:"message,omitempty"`
	AsOf               time.Time `json:"asOf,omitzero" doc:"When the agent last reported; absent before the first report."`
	StaleSince         time.Time `json:"staleSince,omitzero" doc:"Set while the agent is not connected: nothing newer is known."`
	Generation         int64     `json:"generation" doc:"Of what is desired."`
	ObservedGeneration int64     `json:"observedGeneration" doc:"Of what sync and health speak of."`
	Commit             string    `json:"commit,omitempty" doc:"The commit that is desired."`
	Tombstone          bool      `json:"tombstone,omitempty" doc:"Its objects are being deleted, on purpose."`
	DetachedAt         time.Time `json:"detachedAt,omitzero" doc:"When it left the environment; its objects stay."`
	DetachedWhy        string    `json:"detachedWhy,omitempty"`
	HeldPrunes         int       `json:"heldPrunes,omitempty" doc:"How many of its objects have left the source and wait for their deletion to be confirmed."`
	Objects            []Object  `json:"objects,omitempty" nullable:"false" doc:"Only when one target is read, or a deployment of few targets."`
}

// Object is what is known of one Kubernetes object of a target.
type Object struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Sync      string `json:"sync"`
	Health    string `json:"health"`
	Reason    string `json:"reason,omitempty" doc:"Identifies the state in one word; see docs/reasons.md."`
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

// Change is one record of the stream: something has changed and may be read again.
type Change struct {
	Seq          int64     `json:"seq"`
	Kind         string    `json:"kind" doc:"agent, connection, token, environment, repository, deployment, desired, status, event, tenant, settings, credential, run, operation or agentconfig."`
	ID           string    `json:"id,omitempty"`
	AgentID      string    `json:"agentId,omitempty"`
	DeploymentID string    `json:"deploymentId,omitempty"`
	At           time.Time `json:"at,omitzero"`
}

// Problem is an error answer (RFC 9457).
type Problem struct {
	Title  string          `json:"title,omitempty"`
	Status int             `json:"status,omitempty"`
	Detail string          `json:"detail,omitempty"`
	Errors []ProblemDetail `json:"errors,omitempty"`
}

// ProblemDetail is one thing that is wrong with a request.
type ProblemDetail struct {
	Message  string `json:"message,omitempty"`
	Location string `json:"location,omitempty"`
}
