// Package gateway is the server end of the agent protocol: sessions, fan-out of desired state,
// intake of statuses. It decides nothing, knows no SQL and renders nothing; what it needs to know
// or has to tell goes through [Control].
//
// A session holds a set of targets that are dirty, never a queue of messages: when the agent can
// take more, the newest rows of those targets are read and sent (invariant 3). A slow agent costs
// only its own set. Statuses are coalesced to the newest per target while the previous batch is
// being written; an agent that sends more than that can hold is slowed down by flow control, and
// nothing is dropped.
//
//	Hello ──▶ Welcome ──hashes agree──▶ SnapshotComplete ──▶ live ──▶ Goodbye / lapse / revoked
//	             └──they differ──▶ TargetStates ──▶ Desired … ──┘
//
// A replica that says it is on standby gets a Welcome and nothing else, and may report nothing: it is
// listed, and its agent counts as connected by the replica that leads.
//
// Per session there are two goroutines: the stream's handler writes, a second one reads.
package gateway
