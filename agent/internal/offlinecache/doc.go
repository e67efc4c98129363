// Package offlinecache stores in the cluster what an agent needs to continue without its server: the server's last
// configuration of the agent, and for each target the newest state that the engine has started to apply, with its
// bundle. A state is stored before the inventory refers to it, so that an agent that was killed halfway can continue.
//
// The data is in a fixed number of Secrets in the agent's own namespace ([agentnames.Slots]). Bundles contain Secrets,
// and RBAC can grant a namespace-scoped agent access to Secrets only by name. Each Secret has several items:
//
//	agent                      the server's configuration of this agent
//	target.<id>                the state of a target, without its bundle
//	bundle.<hex>.<i>-of-<n>    a part of a bundle; targets with the same bundle share it
//
// Items have checksums, and bundles are verified against their digests. The cache skips a damaged, incomplete or
// foreign item and logs a warning. The cache never causes a deletion: a reader gets either the state of a target that
// the inventory lists too, or nothing.
//
// A background goroutine writes. A change of one Secret is one small PATCH, and nothing is written when nothing has
// changed. The cache writes a bundle before the state that refers to it and removes it after that state, so that
// after a kill at any moment one complete state is stored, the old one or the new one.
//
// A bundle that does not fit into the budget is not stored. The agent reports it, and everything else works as usual.
package offlinecache
