// Package polling serves agents that poll: what they have to run, whether that changed since their last poll, and
// for how long they count as present.
//
// It must not check credentials (the APIs do) and must not decide what a target shall have (package rollout does).
//
// Invariants: a tag is equal exactly when what an agent acts on is equal. An agent is present while one of its polls is
// open and for one lease after the last answer; the end of a lease is written, however often that takes. An agent
// that is ahead of the server, or may be, is told to hold its prune.
//
// Concurrency: a [Poller] is safe for concurrent use. Run follows the changes that wake polls which wait.
package polling
