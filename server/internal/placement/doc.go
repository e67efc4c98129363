// Package placement assigns deployments to the agents that their environments select: it creates targets,
// detaches targets that are no longer selected, and removes the targets of deleted deployments.
//
// It must not decide the desired state of a target (package rollout does), and must not authorize callers
// (package control does).
//
// Invariants: the same input writes nothing. A target that leaves its environment keeps its objects, unless its
// policy says otherwise and nothing is suspended. A tombstone is written only for a deleted deployment, or by
// that policy. An agent continues with the targets of a deleted agent of its name only in the same cluster.
//
// Concurrency: a [Placer] is safe for concurrent use. Its methods run in the transactions of their callers, and
// may run more than once if the store repeats them.
package placement
