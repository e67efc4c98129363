// Package localpod runs the container of a Kubernetes Deployment as a local process, with the arguments, environment,
// mounted files and ServiceAccount of the applied object. The demo and the tests start agents in this way on clusters with
// simulated nodes, which do not run containers: a wrong flag in a manifest, or a missing RBAC rule, fails as in a real pod.
//
// The package reads the cluster with kubectl and the credentials of the user who installs the agent. It does not pass them
// to the process, which gets a kubeconfig with a short-lived token of the ServiceAccount. The token is renewed while the
// process runs.
package localpod
