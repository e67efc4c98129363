// Package agent is the composition root of kedge-agent, which connects a cluster to a server. It makes no decisions about
// deployments.
//
// An agent needs the address of the server, a token file and, for a private CA, its certificate. The server sends the rest
// of the configuration. The agent listens only for health checks and metrics.
//
// # Replicas
//
// Several replicas share one identity. They elect a leader with a Lease in the agent's namespace. Only the leader has an
// engine and is connected as the agent. The other replicas are connected as standbys, so that the server knows them. A new
// leader reads its state from the cluster.
//
// # Without a server
//
// The agent stores the server's configuration, and the states of targets with their bundles, in Secrets of its namespace. A
// leader starts its engine from this offline cache before it connects, so that drift is corrected while the server is
// unavailable. Nothing is deleted then. When the server is available again, the agent lists the states that it has and
// receives those that differ. An agent that the server had refused before a restart waits until the server accepts it.
//
// # The token
//
// The server can rotate the token of a connected agent. The agent stores the new token in the Secret from which its token
// file is mounted (--token-secret; the enroll manifest sets it together with the permission to change that Secret), or else
// in the file, which it replaces atomically. If it can do neither, it reports the reason to the server and continues to use
// the old token. Otherwise it reconnects with the new token at once. If the server refuses that one, the agent tries the
// tokens that worked before, the newest first. Replicas share the Secret: a replica whose token is refused finds there the
// token that another replica has stored.
//
// # Capabilities of the cluster
//
// Charts are rendered for the Kubernetes version and the API versions of the cluster. The leader sends them when it
// connects, and again on the same connection when they change: it watches the metadata of CustomResourceDefinitions and
// APIServices, and reads the capabilities after each change. An agent that may not watch these sends changes when it
// connects the next time.
//
// # Stages
//
// The health endpoint starts first, so that an agent that cannot connect can report it; then the check of the namespace for
// the inventory, which may be missing when the agent runs outside of the cluster; then the owner's policy; then the replica,
// which leads or follows. A leader term has stages of its own: the watch of the capabilities, the offline cache and the
// engine. They stop in reverse order. The link to the server runs while the replica leads.
//
// # Exit codes
//
// Run returns nil after an orderly stop (exit code 0), an error that wraps [ErrConfig] when the configuration is wrong and a
// retry cannot help (exit code 2), and any other error after an unexpected failure (exit code 1). The agent does not exit
// when it cannot reach the server, or when the server refuses the token or has a bad certificate. It reports that in its
// log, at /readyz and in its metrics, and retries with a growing, jittered delay.
package agent
