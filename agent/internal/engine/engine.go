// Package engine is the contract of whatever makes a cluster hold what a target desires, and the
// values that pass through it. The builtin engine lives below it; enginetest states the contract
// against a real API server.
//
// An engine works on state, not on requests: it is told the newest [Desired] of a target and goes
// on making it true (healing drift, retrying what failed) until it is told something newer. It
// never deletes an object because it was not told of it.
//
// A target that is Detached is let go of: its objects stay as they are but for the marks of
// ownership, which are removed, so that others may adopt them. That is reported as Detached, with
// the objects listed once more, and then the target is forgotten. Letting go deletes nothing,
// whenever it is interrupted and whatever follows; a newer Desired takes the objects up again. A
// Detached target that is not known is acknowledged at once.
//
// An object beyond State.Limits fails visibly, as one that the cluster refuses; it is neither
// applied nor adopted nor pruned.
package engine

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Desired is the newest state of one target, with its objects at hand.
type Desired struct {
	Target     fleet.TargetID
	Tenant     string
	Deployment string
	State      fleet.Desired
	// Objects is what shall exist; nil when State.Tombstone or State.Detached is set, or Source.
	Objects *manifest.Set
	// Source is set instead of Objects for an engine that lets another controller fetch and apply what shall
	// exist. An engine that applies by itself refuses it: the target is Failed and says why, and what
	// is in place stays as it is until something else is desired.
	Source *Source
	// Keep has this state kept for when the server is away, and returns a channel that is closed when that
	// was done or did not work; nil means that nobody keeps it. An engine calls it, and waits, before it
	// writes down that it works on this version: what it remembers must never be ahead of what is kept,
	// or a restart without a server would find no way on.
	Keep func() <-chan struct{}
}

// Source says where a controller in the cluster finds what shall exist.
type Source struct {
	RepoURL  string
	Path     string // folder in the repository; "" is all of it
	Revision string // branch, tag or commit
	Kind     string // how it is rendered: yaml, kustomize or helm
	// Credential names how the repository is read, in a way that the controller understands; "" means
	// that it is public. It is never the secret itself.
	Credential string
}

// Held is what an engine knows of a target from the cluster itself, after a restart.
type Held struct {
	Target fleet.TargetID
	fleet.Version
	Digest string // last bundle that was applied whole
	// AtHand says that the objects of Digest were found too, and Set: they need not be sent again.
	// Recover leaves it to whoever keeps them.
	AtHand bool
}

// Status is the newest state of a target, with every object of it.
type Status struct {
	Target   fleet.TargetID
	Observed fleet.Observed
	Objects  []fleet.ObjectStatus // sorted by ref; all of them
}

// Reporter takes what an engine has to say. Its methods do not block and may be called from
// several goroutines; a Status replaces the earlier one of the same target.
type Reporter interface {
	Status(Status)
	Event(target fleet.TargetID, e fleet.Event)
}

// Engine makes targets true. Its methods are safe for concurrent use.
type Engine interface {
	// Recover reads what the cluster remembers of earlier work. It is called once, before Run.
	Recover(ctx context.Context) ([]Held, error)
	// Run works until ctx ends. What was in flight is abandoned in a state that Recover mends.
	Run(ctx context.Context) error
	// Set replaces what is desired of one target and returns at once. A newer version cancels the
	// work on an older one; an older one than is held is ignored.
	Set(d Desired)
	// Pending says that the newest states of n targets of this agent are known to exist and have not
	// been Set yet, or that it is not known yet which targets there are (any n above 0). An object
	// that one target no longer desires may be what such a target is about to desire, so that nothing
	// is pruned and no tombstone carried out meanwhile; with 0 that goes on by itself. It starts at 0.
	// Whoever hands over several states at once calls it before the first of them, and with 0 after
	// the last.
	Pending(n int)
}
