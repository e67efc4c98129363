package apiv1

import "time"

// Revision is one that was rendered whole and is kept, so that a rollback needs no Git.
type Revision struct {
	Seq        int64     `json:"seq" doc:"What a rollback names."`
	Commit     string    `json:"commit"`
	Author     string    `json:"author,omitempty" doc:"Author of the commit; absent when the server's mirror does not hold the commit."`
	Message    string    `json:"message,omitempty" doc:"First line of the message of the commit; absent when the server's mirror does not hold the commit."`
	RenderedAt time.Time `json:"renderedAt,omitzero"`
	Digests    []string  `json:"digests" nullable:"false" doc:"Names its objects; several when agents get variants."`
}

// Rollback asks to go back to a kept revision, by its number or its commit. An automated deployment
// stays there until it is released.
type Rollback struct {
	Revision int64  `json:"revision,omitempty" minimum:"0" doc:"Number of a kept revision."`
	Commit   string `json:"commit,omitempty" doc:"Commit of a kept revision."`
}

// CreateRun asks for a sync.
type CreateRun struct {
	Revision string `json:"revision,omitempty" doc:"Branch, tag or commit; that of the deployment when absent."`
}

// UpdateRun changes a run that has not started.
type UpdateRun struct {
	Revision string `json:"revision"`
}

// SyncRun is an explicit request. Those of one deployment run one after another, in order.
type SyncRun struct {
	ID         string    `json:"id"`
	Deployment string    `json:"deployment"`
	Seq        int64     `json:"seq" doc:"Order within the deployment."`
	Kind       string    `json:"kind" enum:"sync,rollback"`
	Revision   string    `json:"revision,omitempty" doc:"As asked for."`
	Kept       int64     `json:"kept,omitempty" doc:"For a rollback: the number of the kept revision."`
	Phase      string    `json:"phase" enum:"Pending,Running,Succeeded,Failed,Terminated"`
	Reason     string    `json:"reason,omitempty" doc:"Identifies why it is in its phase; see docs/reasons.md."`
	Message    string    `json:"message,omitempty"`
	Commit     string    `json:"commit,omitempty" doc:"What the revision was resolved to."`
	By         string    `json:"by,omitempty"`
	Operation  string    `json:"operation,omitempty" doc:"ID of the operation that tracks it."`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
}

// RunWaiting is what a sync run waits for; nothing when it is done.
type RunWaiting struct {
	For  []RunWait `json:"for" nullable:"false"`
	More int       `json:"more,omitempty" doc:"How many agents there are beside those that are named."`
}

// RunWait is one thing that a sync run waits for.
type RunWait struct {
	Reason  string `json:"reason" doc:"One of WaitsForTurn, Suspended, RepositoryUnreadable, ReadingSource, NeverConnected, Disconnected, Applying."`
	Agent   string `json:"agent,omitempty" doc:"The agent that has not answered; absent while the run has not started."`
	Message string `json:"message"`
}

// Operation is tracked asynchronous work: what a 202 answer links to.
type Operation struct {
	ID         string    `json:"id"`
	Action     string    `json:"action" doc:"Such as deployment.delete."`
	Kind       string    `json:"kind" doc:"Of the resource."`
	Name       string    `json:"name" doc:"Of the resource."`
	ResourceID string    `json:"resourceId,omitempty"`
	State      string    `json:"state" enum:"Waiting,InProgress,Completed,Failed"`
	Message    string    `json:"message,omitempty"`
	By         string    `json:"by,omitempty"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	UpdatedAt  time.Time `json:"updatedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
}

// AuditEvent says who did what, through which door, to what.
type AuditEvent struct {
	Seq     int64     `json:"seq"`
	At      time.Time `json:"at,omitzero"`
	Actor   string    `json:"actor" doc:"Name of the token or person, or system."`
	Door    string    `json:"door,omitempty"`
	Action  string    `json:"action" doc:"Such as deployment.create."`
	Kind    string    `json:"kind,omitempty"`
	Name    string    `json:"name,omitempty"`
	ID      string    `json:"id,omitempty"`
	Request string    `json:"request,omitempty" doc:"Id of the request, as in its answer and in the log."`
	Address string    `json:"address,omitempty"`
	Detail  string    `json:"detail,omitempty"`
}
