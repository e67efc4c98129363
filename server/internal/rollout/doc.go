// Package rollout decides what each target shall have: which bundle, namespace and policy, whether its prune is
// held, what it hands over to other deployments, and what its sync runs wait for. It writes the decision, and
// what agents report about it, into the store.
//
// It must not read Git, render, choose agents for a deployment (package placement does), or check who is
// calling (package control does). It never talks to agents: they get what is written through the change feed.
//
// Invariants: absence is never deletion. [Reconciler] only ever gives a target whole bundles and leaves
// tombstones alone; a target whose agent is ahead of the database keeps what it has until its source was read
// again, and gets its next version with its prune held. An object that moves from one deployment to another is
// kept by the first until the second has it.
//
// Concurrency: a [Planner] is safe for concurrent use. A [Reconciler], [Suspensions], [HandOvers] and
// [CommitScope] belong to one transaction or one commit, and to one goroutine. Every method that takes a
// transaction may run more than once, when the store repeats it.
package rollout
