// Package install makes the manifest that puts an agent into a cluster: the one thing that a
// platform engineer applies. It is a pure function of its options, talks to nobody and reads no
// file, and its output is in a stable order.
//
// The manifest holds nothing but the agent's own installation. Namespaces that the agent works in
// are never part of it, so that deleting the manifest deletes no application object.
//
// Names are chosen so that several agents fit into one cluster: each has a namespace of its own
// ([Namespace]), and whatever lives outside of it carries that same name.
package install
