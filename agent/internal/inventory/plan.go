package inventory

import (
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Policy is everything that Plan needs to know beyond the two lists. Its zero value deletes nothing.
type Policy struct {
	// Whole says that the desired list is a complete, verified bundle, or a tombstone.
	Whole bool
	// Prune is the deployment's policy. A tombstone sets it: deleting the deployment is consent.
	Prune bool
	// Hold keeps everything this time.
	Hold bool
	// AllowEmpty accepts an empty desired list as meant. A tombstone sets it.
	AllowEmpty bool
	// Unsettled is how many desired objects are not in place yet.
	Unsettled int
	// Damaged names parts of the inventory that could not be read.
	Damaged []string
	// Pending says that there are other deployments which have not said yet what they desire: it may
	// be what is no longer desired here.
	Pending bool
}

// Held is an entry that is no longer desired and is kept all the same.
type Held struct {
	Entry
	Reason string // completes "kept: …"
	// Protected says that it is kept for what it is, not because of a doubt that may pass.
	Protected bool
	// Waiting says that it is kept only until the others have said what they desire.
	Waiting bool
}

// guard returns why nothing at all may be deleted, or "".
func (p Policy) guard(desired int) string {
	switch {
	case len(p.Damaged) > 0:
		return fmt.Sprintf("the inventory cannot be read (ConfigMap %s); restore it, or delete every ConfigMap of the inventory of this target, and restart the agent", p.Damaged[0])
	case !p.Whole:
		return "the bundle has not arrived whole"
	case desired == 0 && !p.AllowEmpty:
		return "the bundle is empty and the deployment does not allow that"
	case p.Unsettled > 0:
		return fmt.Sprintf("nothing is pruned while %d of its objects could not be applied", p.Unsettled)
	case p.Hold:
		return "pruning is held for this sync"
	case !p.Prune:
		return "pruning is off for this deployment"
	}
	return ""
}

// Plan splits what is no longer desired into what is to be deleted and what is kept, with the
// reason. Whatever is desired is in neither. Both results are in the order of their keys.
//
// What Plan lets through is still checked one by one against the live object before it is deleted.
func Plan(old []Entry, desired []fleet.ObjectRef, policy Policy) (remove []Entry, held []Held) {
	wanted := make(map[Key]bool, len(desired))
	for _, ref := range desired {
		wanted[KeyOf(ref)] = true
	}
	why := policy.guard(len(wanted))
	for _, entry := range slices.SortedFunc(slices.Values(old), compareEntries) {
		switch {
		case wanted[KeyOf(entry.ObjectRef)]:
		case why != "":
			held = append(held, Held{Entry: entry, Reason: why})
		case manifest.IsProtected(entry.ObjectRef):
			held = append(held, Held{Entry: entry, Protected: true, Reason: entry.Kind + " is a protected kind; delete it by hand if it is no longer needed"})
		case policy.Pending:
			held = append(held, Held{Entry: entry, Waiting: true, Reason: "other deployments of this agent have not arrived yet"})
		default:
			remove = append(remove, entry)
		}
	}
	return remove, held
}

func compareEntries(a, b Entry) int { return KeyOf(a.ObjectRef).Compare(KeyOf(b.ObjectRef)) }
