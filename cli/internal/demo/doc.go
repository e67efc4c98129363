// Package demo shows the main job on one machine: clusters, a server, an agent per cluster and a Git
// repository with a sample application, all real, started and stopped by one command.
//
// It contains no shortcut: agents are enrolled and installed as a platform engineer does it, the
// application is deployed as an application team does it, and what counts as done is read from the
// clusters' own API servers.
package demo
