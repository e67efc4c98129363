// Package gateway is the server end of the agent protocol. It keeps one session per connected replica of an
// agent, sends desired states and receives statuses. It makes no decisions, contains no SQL and renders nothing.
// It calls [Control] for everything that it reads or records.
//
// A session has a set of dirty targets, not a queue of messages. When the agent can receive, the session reads
// the newest rows of these targets and sends them (invariant 3), so a slow agent delays only itself. While one
// batch of statuses is being written, the gateway keeps only the newest status of each target. Flow control slows
// down an agent that sends more than the gateway can buffer. Nothing is dropped.
//
//	Hello ──▶ Welcome ──hashes equal──▶ SnapshotComplete ──▶ live ──▶ Goodbye / lease expired / revoked
//	             └──hashes differ──▶ TargetStates ──▶ Desired … ──┘
//
// A standby replica gets a Welcome and nothing else, and must not report. It is listed, but an agent counts as
// connected only while its leader is connected.
//
// A session has two goroutines: the stream's handler sends, the other one receives.
package gateway
