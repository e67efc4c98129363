// Package link is the agent end of the protocol: it dials the server, authenticates, keeps one
// connection, hands desired state to an engine and carries statuses back.
//
// A [Client] holds state, not queues: per target the newest desired state it has passed on, and
// the newest status. What a server has confirmed is not sent again, whatever happens to the
// connection in between. It never exits because of the server: every failure is classified (see
// [Problem]), logged, counted and followed by a jittered backoff.
//
// A client costs little when idle and may run in thousands in one process. Per connection there
// are two goroutines besides those of gRPC: one reads, one writes.
package link
