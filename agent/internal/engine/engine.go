// Package engine is the contract of an engine: the part of the agent that makes a cluster have what a target desires. The
// builtin engine is a package below it; enginetest tests the contract against a real API server.
//
// An engine works on state, not on requests: it gets the newest [Desired] of a target and keeps the cluster in that state
// (it corrects drift and retries failures) until it gets a newer one. It never deletes an object because it was not told
// about it.
//
// A Detached target is released: its objects stay as they are, except that the labels of ownership are removed, so that others
// may adopt them. The engine reports Detached, with the objects listed once more, and forgets the target. A detachment deletes
// nothing, even if it is interrupted; a newer Desired takes the objects over again. A Detached target that is not known is
// acknowledged at once.
//
// An object outside State.Limits fails visibly, like one that the cluster refuses. It is neither applied nor adopted nor
// pruned.
package engine

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Desired is the newest state of one target, with its objects.
type Desired struct {
	Target     fleet.TargetID
	Tenant     string
	Deployment string
	State      fleet.Desired
	// Objects are the desired objects; nil when State.Tombstone, State.Detached or Source is set.
	Objects *manifest.Set
	// Source is set instead of Objects for an engine that has Argo CD fetch and apply the objects of State.Commit. An engine
	// that applies by itself refuses it, and an engine with Argo CD refuses Objects: the target is Failed with the reason,
	// and its objects stay as they are until something else is desired.
	Source *fleet.EngineSource
	// Keep stores this state for times when the server cannot be reached. It returns a channel that is closed when that has
	// succeeded or failed. A nil Keep means that the state is not stored. An engine calls Keep, and waits, before its
	// inventory names this version: an inventory that is ahead of the stored state would leave a restart without a server
	// nothing to continue from.
	Keep func() <-chan struct{}
}

// Held is what an engine knows about a target from the inventory in the cluster, after a restart.
type Held struct {
	Target fleet.TargetID
	fleet.Version
	Digest string // last bundle that was applied whole
	// AtHand: the objects of Digest were found and Set, so they need not be sent again. Recover does not set it.
	AtHand bool
}

// Status is the newest state of a target, with every object of it. The target and each object have a reason of the list in
// package fleet.
type Status struct {
	Target   fleet.TargetID
	Observed fleet.Observed
	Objects  []fleet.ObjectStatus // sorted by ref; all of them
}

// Reporter receives the statuses and events of an engine. Its methods do not block and may be called from several
// goroutines. A Status replaces the earlier one of the same target.
type Reporter interface {
	Status(Status)
	Event(target fleet.TargetID, e fleet.Event)
}

// Engine reconciles targets. Its methods are safe for concurrent use.
type Engine interface {
	// Recover reads the inventories in the cluster. It is called once, before Run.
	Recover(ctx context.Context) ([]Held, error)
	// Run works until ctx ends. Requests under way are abandoned; the next Recover and Run continue from there.
	Run(ctx context.Context) error
	// Set replaces the desired state of one target and returns at once. A newer version cancels the work on an older one. A
	// version older than the inventory is ignored.
	Set(d Desired)
	// Pending sets how many targets of this agent have a newest state that was not Set yet; any number above 0 when that is
	// not known. One of them may desire an object that another target does not desire any more, so nothing is pruned and no
	// tombstone is carried out until Pending is called with 0. It starts at 0. A caller of several Sets calls it before the
	// first one, and with 0 after the last one.
	Pending(n int)
}
