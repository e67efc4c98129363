// Package agent is the composition root of kedge-agent: it connects a cluster to a server and
// decides nothing.
//
// An agent needs an address, a token file and, for a private CA, its certificate; everything else
// comes from the server when it connects. It never listens for anything but health and metrics.
//
// # Stages
//
// The health endpoint comes first, so that an agent that cannot connect can say so; then the look
// for the namespace of the inventory, which an agent outside of its cluster may lack; then the
// engine, which is made when the server has said whose agent this is; then the link. They stop in
// reverse.
//
// # Exit codes
//
// Run returns nil after an orderly stop (exit code 0), an error that wraps [ErrConfig] when it was
// set up wrong and trying again is no use (exit code 2), and any other error when something broke
// that should not (exit code 1). A server that cannot be reached, refuses the token or has a bad
// certificate ends nothing: the agent says so in its log, at /readyz and in its metrics, and tries
// again with a growing, jittered delay.
package agent
