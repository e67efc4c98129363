// Package agentnames defines the names of the objects that an agent keeps in its own namespace. The install
// manifest grants access to exactly these names, so the manifest and the agent share them.
package agentnames

import "strconv"

const (
	// Lease is the Lease by which the replicas of an agent elect their leader.
	Lease = "kedge-agent"
	// Policy is the ConfigMap in which the owner of the cluster restricts the agent. The owner creates it;
	// the agent reads it as a file and never writes it.
	Policy = "kedge-agent-policy"
	// PolicyKey is the key of the policy in that ConfigMap.
	PolicyKey = "policy.yaml"
	// Slots is the number of Secrets of the offline cache. Their names are fixed, because RBAC can grant
	// access to named Secrets without granting access to every Secret of the namespace.
	Slots = 32
	// SlotSize is the most bytes that one of them holds. The API server accepts 1 MiB.
	SlotSize = 900 << 10
)

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
