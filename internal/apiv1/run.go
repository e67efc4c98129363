package apiv1

import "time"

// Revision is a revision that was rendered completely and is kept, so that a rollback needs no Git.
type Revision struct {
	Seq        int64     `json:"seq" doc:"Number of the revision; a rollback uses it."`
	Commit     string    `json:"commit"`
	Author     string    `json:"author,omitempty" doc:"Author of the commit; absent if the mirror of the server does not contain the commit."`
	Message    string    `json:"message,omitempty" doc:"First line of the commit message; absent if the mirror of the server does not contain the commit."`
	RenderedAt time.Time `json:"renderedAt,omitzero"`
	Digests    []string  `json:"digests" nullable:"false" doc:"Digests of its bundles; several if agents get variants."`
}

// Rollback is the request to return to a kept revision, by number or by commit. An automated deployment stays
// there until you release it.
type Rollback struct {
	Revision int64  `json:"revision,omitempty" minimum:"0" doc:"Number of a kept revision."`
	Commit   string `json:"commit,omitempty" doc:"Commit of a kept revision."`
}

// CreateRun is the request for a sync.
type CreateRun struct {
	Revision string `json:"revision,omitempty" doc:"Branch, tag, or commit; the revision of the deployment if absent."`
}

// UpdateRun changes a sync run that has not started.
type UpdateRun struct {
	Revision string `json:"revision"`
}

// SyncRun is an explicit request to sync or to roll back. The runs of one deployment are executed one after
// another.
type SyncRun struct {
	ID         string    `json:"id"`
	Deployment string    `json:"deployment"`
	Seq        int64     `json:"seq" doc:"Order within the deployment."`
	Kind       string    `json:"kind" enum:"sync,rollback"`
	Revision   string    `json:"revision,omitempty" doc:"The requested revision."`
	Kept       int64     `json:"kept,omitempty" doc:"For a rollback: the number of the kept revision."`
	Phase      string    `json:"phase" enum:"Pending,Running,Succeeded,Failed,Terminated"`
	Reason     string    `json:"reason,omitempty" doc:"Identifier of the cause of the phase; see docs/reasons.md."`
	Message    string    `json:"message,omitempty"`
	Commit     string    `json:"commit,omitempty" doc:"The commit that the revision resolved to."`
	By         string    `json:"by,omitempty"`
	Operation  string    `json:"operation,omitempty" doc:"ID of the operation that tracks it."`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
}

// RunWaiting lists what a sync run waits for; empty if the run is done.
type RunWaiting struct {
	For  []RunWait `json:"for" nullable:"false"`
	More int       `json:"more,omitempty" doc:"Number of agents that are not listed."`
}

// RunWait is one thing that a sync run waits for.
type RunWait struct {
	Reason  string `json:"reason" doc:"One word; see docs/reasons.md."`
	Agent   string `json:"agent,omitempty" doc:"The agent that has not finished; absent before the run starts."`
	Message string `json:"message"`
}

// Operation is tracked asynchronous work; a 202 response links to it.
type Operation struct {
	ID         string    `json:"id"`
	Action     string    `json:"action" doc:"For example, deployment.delete."`
	Kind       string    `json:"kind" doc:"Kind of the resource."`
	Name       string    `json:"name" doc:"Name of the resource."`
	ResourceID string    `json:"resourceId,omitempty"`
	State      string    `json:"state" enum:"Waiting,InProgress,Completed,Failed"`
	Message    string    `json:"message,omitempty"`
	By         string    `json:"by,omitempty"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	UpdatedAt  time.Time `json:"updatedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
}

// AuditEvent records who did what, through which API, to what.
type AuditEvent struct {
	Seq       int64     `json:"seq"`
	At        time.Time `json:"at,omitzero"`
	Actor     string    `json:"actor" doc:"Name of the token or person, or system."`
	Component string    `json:"component,omitempty"`
	Action    string    `json:"action" doc:"For example, deployment.create."`
	Kind      string    `json:"kind,omitempty"`
	Name      string    `json:"name,omitempty"`
	ID        string    `json:"id,omitempty"`
	Request   string    `json:"request,omitempty" doc:"ID of the request, as in its response and in the log."`
	Address   string    `json:"address,omitempty"`
	Detail    string    `json:"detail,omitempty"`
}
