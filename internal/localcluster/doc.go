// Package localcluster runs a real Kubernetes control plane on this machine for as long as a
// test or the demo needs it: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and
// kwok in the place of kubelets. Garbage collection, namespace deletion, RBAC and ServiceAccount
// tokens are the real thing; only containers are simulated, so that a Deployment becomes
// Available without an image.
//
// The programs are started directly rather than through kwokctl, which starts daemons that
// outlive their parent. Here they are one process group with a watchdog: a shell that waits for
// the end of a pipe whose other end only this process holds. However this process ends, kill -9
// included, the pipe closes, and the watchdog kills the group and removes the folder. etcd listens
// on sockets inside that folder, so that the API server's is the only TCP port.
//
// Everything that the programs write is below the cluster's own folder; nothing goes to the home
// folder. Clusters are independent of each other and several may run at once. The package does
// not import testing, because the demo uses it.
package localcluster
