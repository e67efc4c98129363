// Package agentnames defines the names of the objects that an agent keeps in its own namespace. The install
// manifest grants access to exactly these names, so the manifest and the agent share them.
package agentnames

import "strconv"

const (
	// Lease is the Lease with which the replicas of an agent elect their leader.
	Lease = "kedge-agent"
	// Policy is the ConfigMap in which the owner of the cluster restricts the agent. The owner creates it;
	// the agent reads it as a file and never writes it.
	Policy = "kedge-agent-policy"
	// PolicyKey is the key of the policy in that ConfigMap.
	PolicyKey = "policy.yaml"
	// Tunnel is the ServiceAccount whose token the agent uses for requests of callers. It may impersonate them and nothing
	// else.
	Tunnel = "kedge-tunnel"
	// Slots is the number of Secrets of the offline cache. Their names are fixed, because RBAC can grant
	// access to named Secrets without granting access to every Secret of the namespace.
	Slots = 32
	// SlotSize is the maximum size of the data of one of them, in bytes. The API server accepts 1 MiB.
	SlotSize = 900 << 10
	// RepositorySecrets is the number of Secrets that an agent may have in the namespace of Argo CD, one for each private
	// repository of a project. Their names are fixed, because the other Secrets in that namespace hold credentials of
	// clusters.
	RepositorySecrets = 100
	// ClusterSecrets is the number of Secrets that an engine instance may have in the namespace of Argo CD, one for each
	// project with a push environment.
	ClusterSecrets = 100
)

// RepositorySecret returns the name of Secret n of a repository, from 0 to RepositorySecrets-1. Several agents may share an
// Argo CD, so that the name contains the namespace of the agent.
func RepositorySecret(agentNamespace string, n int) string {
	return agentNamespace + "-repository-" + strconv.Itoa(n)
}

// RepositorySecretNames returns the names of all Secrets of repositories.
func RepositorySecretNames(agentNamespace string) []string {
	names := make([]string, RepositorySecrets)
	for n := range names {
		names[n] = RepositorySecret(agentNamespace, n)
	}
	return names
}

// ClusterSecret returns the name of Secret n of a cluster, from 0 to ClusterSecrets-1.
func ClusterSecret(agentNamespace string, n int) string {
	return agentNamespace + "-cluster-" + strconv.Itoa(n)
}

// ClusterSecretNames returns the names of all Secrets of clusters.
func ClusterSecretNames(agentNamespace string) []string {
	names := make([]string, ClusterSecrets)
	for n := range names {
		names[n] = ClusterSecret(agentNamespace, n)
	}
	return names
}

// Slot returns the name of Secret n of the offline cache; n is from 0 to Slots-1.
func Slot(n int) string { return "kedge-offline-" + strconv.Itoa(n) }

// SlotNames returns the names of all Secrets of the offline cache.
func SlotNames() []string {
	names := make([]string, Slots)
	for n := range names {
		names[n] = Slot(n)
	}
	return names
}
