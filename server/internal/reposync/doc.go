// Package reposync turns commits into desired states: one worker per repository resolves the revisions in use,
// reads the configuration files of agents, evaluates the deployments at the new commits, and commits the
// results in as few transactions as possible.
//
//	push, edit, sync run, poll ─▶ worker ─▶ resolve ─▶ evaluate (render) ─▶ commit ─▶ start sync runs
//
// It must not authorize callers, and must not decide the desired state of a target (package rollout) or the
// agents of a deployment (package placement). It gets the decisions of use cases from control, through
// [Control].
//
// Invariants: a source that cannot be read or rendered changes only its status. The changes of one commit are
// written together, and removals of objects are written last, because the objects may have moved to another
// deployment of the commit. A pending spec takes effect in one transaction. The memory of a worker only saves
// work: a worker that starts again, here or on another replica, has the same result.
//
// Concurrency: a [Manager] is safe for concurrent use. A worker runs on one replica at a time. A repository
// that hangs delays no other, and a tenant no other tenant (invariant 12).
package reposync
