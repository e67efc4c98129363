// Package reposync turns commits into desired states: one worker per repository resolves the revisions in use,
// reads the configuration files of agents, evaluates the deployments at the new commits, and commits what follows in as
// few transactions as possible.
//
//	push, edit, sync run, poll ─▶ worker ─▶ resolve ─▶ evaluate (render) ─▶ commit ─▶ start sync runs
//
// It must not check who is calling, and must not decide what a target shall have (package rollout) or which agents
// a deployment goes to (package placement). It asks control, through [Control], for the decisions of use-cases.
//
// Invariants: a source that cannot be read or rendered changes nothing but what is shown about it. What one commit
// changes is written together, and what takes objects away is written last, because the objects may have moved to
// another deployment of the commit. A pending spec comes into force in one transaction. A worker remembers only what
// saves work: one that starts again, here or on another replica, comes to the same result.
//
// Concurrency: a [Manager] is safe for concurrent use. A worker runs on one replica at a time. A repository that hangs
// delays no other, and a tenant no other tenant (invariant 12).
package reposync
