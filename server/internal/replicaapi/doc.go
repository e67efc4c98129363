// Package replicaapi is the private API between servers that share a database. A server that has no connection of an agent
// opens a connection to the agent at the server that has one.
//
// It uses the TunnelService of agents, on a listener of its own with mutual TLS: the calling server sends the agent and the
// identity of the caller as metadata, and then the frames of the connection. The certificate of the calling server is the
// only authorization, because that server has already authenticated and authorized the caller.
//
// It must not decide who may reach an agent, and does not know where an agent is connected; package relay does both. A server
// never passes a connection on to a third one.
//
// Concurrency: everything exported is safe for concurrent use.
package replicaapi
