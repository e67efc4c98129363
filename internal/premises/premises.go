// Package premises names what an agent keeps in its own namespace. The manifest that installs an
// agent grants it just these names, so that both sides have to mean the same.
package premises

import "strconv"

const (
	// Lease is what the replicas of an agent choose their leader by.
	Lease = "kedge-agent"
	// Policy is the ConfigMap in which the owner of the cluster says what the agent must not do. People
	// make it; the agent reads it as a file and never writes it.
	Policy = "kedge-agent-policy"
	// PolicyKey is the key in it.
	PolicyKey = "policy.yaml"
	// Slots is how many Secrets hold what the agent goes on with when its server is away. Their names
	// are fixed, because only a named Secret can be granted without all others of the namespace.
	Slots = 32
	// SlotSize is how much one of them holds. An API server takes 1 MiB.
	SlotSize = 900 << 10
)

// Slot is the name of one of the Secrets, from 0 to Slots-1.
func Slot(n int) string { return "kedge-offline-" + strconv.Itoa(n) }

// SlotNames are the names of all of them.
func SlotNames() []string {
	names := make([]string, Slots)
	for n := range names {
		names[n] = Slot(n)
	}
	return names
}
