// Package relay carries requests of users into the clusters of agents. It takes a tunnel that the agent has opened, says who
// the caller is, and proxies the HTTP request through it. The agent impersonates the caller, so that the RBAC of the cluster
// decides. The server holds no credential of the cluster.
//
// If the agent is connected to another server, that server takes the tunnel and copies the bytes; everything else happens here.
// A request that another server forwards is never forwarded again.
package relay
