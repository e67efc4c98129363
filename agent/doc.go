// Package agent is the composition root of kedge-agent: it connects a cluster to a server and
// decides nothing.
//
// An agent needs an address, a token file and, for a private CA, its certificate; everything else
// comes from the server when it connects. It never listens for anything but health and metrics.
//
// # Replicas
//
// Several replicas share one identity. One leads, by a Lease in the agent's namespace: it alone has
// an engine and speaks for the agent. The others are connected so that they are known, and wait. When
// leadership changes everything that belongs to it is made anew, from what is in the cluster.
//
// # Without a server
//
// What the server last said, and the states of targets with their bundles, are kept in Secrets of the
// agent's namespace. A leader starts its engine from them before it connects: drift is healed while
// no server is there. Nothing is deleted then. When the server is back it is told what is at hand, and
// sends what differs. An agent that the server had refused before a restart waits to be let in.
//
// # The token
//
// The server may give the agent a new token while it is connected. The agent keeps it in the Secret
// that its token file is mounted from (--token-secret, which the enrol manifest sets together with
// the right to change just that Secret), or else in the file itself, which is replaced in one step
// where it is writable; where neither can be done it tells the server why and stays with its token.
// Then it comes back with the new one at once. If that is refused it falls back to the tokens that
// have worked before, the newest first. Several replicas share one Secret: the one that was not told
// finds the new token there when its own is refused.
//
// # What the cluster offers
//
// Charts are rendered for the Kubernetes version and the API versions of the cluster. The server is told of them
// when the leader connects, and again on the same connection when they change: the leader watches, by their
// metadata, the definitions and registrations that make an API server serve something else, and looks at it after
// each. An agent that may not watch those tells of a change when it next connects.
//
// # Stages
//
// The health endpoint comes first, so that an agent that cannot connect can say so; then the look
// for the namespace of the inventory, which an agent outside of its cluster may lack; then the
// replica, which leads or follows. Leading has stages of its own: the watch of what the cluster offers, the
// offline cache, the engine, the link.
// They stop in reverse, but for the engine, which ends at once when leadership is lost.
//
// # Exit codes
//
// Run returns nil after an orderly stop (exit code 0), an error that wraps [ErrConfig] when it was
// set up wrong and trying again is no use (exit code 2), and any other error when something broke
// that should not (exit code 1). A server that cannot be reached, refuses the token or has a bad
// certificate ends nothing: the agent says so in its log, at /readyz and in its metrics, and tries
// again with a growing, jittered delay.
package agent
