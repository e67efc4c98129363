// Package argocd runs a real Argo CD for tests: its application controller, its repo server, and a Redis, as
// processes of this machine that use a cluster of testkit. Its settings, roles, and CRDs are those of its own
// manifests.
//
// Several instances can run at the same time, in namespaces of one cluster or of several. Each has its own
// Redis, and an installation ID, so that two Applications of the same name do not claim each other's objects.
//
// Tests must not wait for timers, so Start disables the periodic comparison with Git. An Application notices a new
// commit when it is refreshed, and one whose comparison failed stays Unknown until it is refreshed. The argument
// --app-resync of the controller enables the comparison. The delays between sync waves and between self-heal
// attempts are zero. Some waits remain, because they have no setting: the information about clusters in Redis is
// updated every 10 s, and a failed operation is retried after a backoff that the Application sets.
//
// The controller uses a ServiceAccount, so that the audit log of the cluster shows its requests under a separate
// user. Only the metrics port of the controller listens on all addresses, because no flag limits it.
package argocd
