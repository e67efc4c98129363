// Package localpod runs the container of a Kubernetes Deployment as a process of this machine, with
// exactly the arguments, environment, mounted files and ServiceAccount that the applied object
// states. On clusters with simulated nodes, where no container ever runs, this is how the demo and
// the tests start an agent: a wrong flag in a manifest, or a missing RBAC rule, fails here as it
// would in a real pod.
//
// It reads the cluster through kubectl with the credentials of whoever installs, and gives the
// process nothing of them: only a kubeconfig with the ServiceAccount's own short-lived token, which
// is renewed while it runs.
package localpod
