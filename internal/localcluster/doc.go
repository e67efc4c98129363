// Package localcluster runs a real Kubernetes control plane on this machine for tests and the demo: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, and kwok instead of kubelets. Garbage collection,
// namespace deletion, RBAC, and ServiceAccount tokens are real. Only containers are simulated, so that a
// Deployment becomes Available without an image.
//
// The programs are started directly and not with kwokctl, which starts daemons that outlive their parent. They
// form one process group with a watchdog: a shell that waits for the end of a pipe whose other end only this
// process holds. If this process ends for any reason, including kill -9, the pipe closes, and the watchdog
// kills the group and removes the folder. etcd listens on sockets inside that folder, so the API server has the
// only TCP port.
//
// All files of the programs are below the folder of the cluster; the home folder is not used. Clusters are
// independent, and several can run at the same time. The package does not import testing, because the demo uses
// it.
package localcluster
