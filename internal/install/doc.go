// Package install generates the manifest that installs an agent in a cluster. The manifest is a pure function
// of its options: the package opens no connection and reads no file. The order of the objects is stable.
//
// The manifest contains only the installation of the agent. Namespaces that the agent manages are not part of
// it, so that deleting the manifest deletes no application objects.
//
// You can install several agents in one cluster: each has its own namespace ([Namespace]), and its objects
// outside that namespace have the same name as the namespace.
package install
