// Package rollout decides the desired state of each target: its bundle, namespace, and policy, whether its
// prune is held, what it hands over to other deployments, and what its sync runs wait for. It writes the
// decision, and the reports of agents, into the store.
//
// It must not read Git, render, choose agents for a deployment (package placement does), or authorize callers
// (package control does). It never contacts agents: they get the decisions through the change feed.
//
// Invariants: absence is never deletion. [Reconciler] only gives complete bundles to targets and does not
// change tombstones; a target whose agent is ahead of the database does not change until its source was read
// again, and gets its next version with its prune held. An object that moves from one deployment to another is
// kept by the first until the second has it.
//
// Concurrency: a [Planner] is safe for concurrent use. A [Reconciler], [Suspensions], [HandOvers], and
// [CommitScope] belong to one transaction or one commit, and to one goroutine. Every method that takes a
// transaction may run more than once, if the store repeats it.
package rollout
