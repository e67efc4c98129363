// Package pantry keeps in the cluster what an agent needs to go on without its server: what the
// server last said of the agent, and per target the newest state that the engine has begun to write down,
// with its bundle. A state is kept before the inventory names it: an agent that was killed in the middle
// of it finds how to go on.
//
// It is kept in a fixed number of Secrets of the agent's own namespace ([agentnames.Slots]), because
// bundles hold Secrets, and because an agent that is limited to namespaces can be granted Secrets by
// their names only. Each Secret has several items:
//
//	agent                      what the server said of this agent
//	target.<id>                the state of a target, without its bundle
//	bundle.<hex>.<i>-of-<n>    a part of a bundle; targets that have the same share it
//
// Items carry checksums, bundles are checked against their digests; what is damaged, incomplete or
// foreign is left out with a warning. Nothing here ever leads to a deletion: whoever reads it back
// gets states of targets that the inventory lists too, or nothing.
//
// Writing happens in the background, a change of one Secret is one small PATCH, and nothing is
// written when nothing has changed. A bundle is there before the state that names it, and goes after
// it, so that a kill at any moment leaves one or the other state whole.
//
// What does not fit into the budget is not kept, which is said and breaks nothing else.
package pantry
