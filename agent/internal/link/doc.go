// Package link is the agent's end of the agent protocol. It dials the server, authenticates, keeps one connection open,
// delivers desired states to an engine and sends statuses back.
//
// A [Client] keeps state, not queues: the newest desired state and the newest status of each target. It does not send a
// status again that the server has confirmed, even after a reconnect. The client never exits because of the server: it
// classifies every failure (see [Problem]), logs and counts it, and retries with a jittered exponential backoff.
//
// An idle client is cheap, so that thousands can run in one process. A connection needs two goroutines besides those of
// gRPC, one that reads and one that writes.
package link
