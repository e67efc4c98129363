// Package placement makes the targets of a deployment those of the agents that its environment selects: it
// assigns deployments to agents, detaches targets that are no longer selected, and removes the targets of
// deployments that are deleted.
//
// It must not decide what a target shall have (package rollout does), and must not check who is calling
// (package control does).
//
// Invariants: the same input writes nothing. A target that leaves its environment keeps its objects, unless its
// policy says otherwise and nothing is suspended. A tombstone is written only for a deployment that was deleted, or
// by that policy. An agent goes on with what a deleted agent of its name left behind only in the same cluster.
//
// Concurrency: a [Placer] is safe for concurrent use. Its methods run in the transactions of their callers, and may
// run more than once, when the store repeats those.
package placement
