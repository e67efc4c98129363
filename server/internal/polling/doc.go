// Package polling serves agents that poll: their desired state, whether it changed since their last poll, and
// how long they count as present.
//
// It must not authenticate callers (the APIs do) and must not decide the desired state of a target (package
// rollout does).
//
// Invariants: a tag is equal if and only if what an agent acts on is equal. An agent is present while one of
// its polls is open and for one lease after the last response; the end of a lease is written, with retries. The
// state for an agent that is ahead of the server, or may be, holds its prune.
//
// Concurrency: a [Poller] is safe for concurrent use. Run follows the changes that wake waiting polls.
package polling
