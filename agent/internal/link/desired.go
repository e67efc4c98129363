package link

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// takeDesired hands a desired state to the engine, at once when the bundle came along and
// otherwise when it has been fetched.
func (n *connection) takeDesired(ctx context.Context, m *agentv1.Desired) error {
	d, err := wire.ParseDesired(m)
	if err != nil {
		return err
	}
	n.log.Info("desired state received", obs.KeyDeployment, d.Deployment, obs.KeyTarget, string(d.Target),
		obs.KeyGeneration, d.State.Generation, obs.KeyCommit, d.State.Commit, "tombstone", d.State.Tombstone, "detached", d.State.Detached)
	if d.State.Tombstone || d.State.Detached {
		n.pass(d, nil)
		return nil
	}
	if len(d.Bundle) > 0 {
		set, err := n.unpack(d.State.Digest, d.Bundle)
		if err == nil {
			n.pass(d, set)
			return nil
		}
		n.log.Warn("a bundle that came along cannot be opened, fetching it", obs.KeyTarget, string(d.Target), obs.Err(err))
	}
	d.Bundle = nil
	n.mu.Lock()
	n.targets.await(d)
	if n.complete {
		n.dropPartialsLocked()
	}
	n.tellPendingLocked()
	n.mu.Unlock()
	n.fetch(ctx, d.State.Digest)
	return nil
}

// pass gives d to the engine and remembers that it is held.
func (c *Client) pass(d wire.Desired, objects *manifest.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passLocked(d, objects)
	c.tellPendingLocked()
}

// passLocked calls Set, which returns at once, under the lock: two states of one target cannot
// overtake each other on their way. Until it has returned, d counts as pending.
func (c *Client) passLocked(d wire.Desired, objects *manifest.Set) {
	c.statuses.mend(d.Target)
	c.engine.Set(engine.Desired{Target: d.Target, Tenant: d.Tenant, Deployment: d.Deployment, State: d.State, Objects: objects})
	c.targets.delivered(d.Target, d.State)
}

// passFetched gives a bundle to every target that waits for it.
func (c *Client) passFetched(digest string, set *manifest.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.targets.awaiting(digest) {
		c.passLocked(d, set)
	}
	c.tellPendingLocked()
}

// reject tells that the objects of every target that waits for a bundle cannot be had. The targets
// stay pending: what they would have may be what others give up.
func (c *Client) reject(digest string, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.targets.awaiting(digest) {
		c.rejectLocked(d, why)
	}
}

func (c *Client) rejectLocked(d wire.Desired, why error) {
	known, version := c.targets.get(d.Target), d.State.Version
	if known.state != nil {
		version = known.state.Version // what is here, not what could not be had
	}
	message := fmt.Sprintf("the objects of commit %s cannot be had, so nothing is pruned on this agent until they can: %v", d.State.Commit, why)
	c.statuses.fail(engine.Status{Target: d.Target, Observed: fleet.Observed{
		Version: version, Health: fleet.HealthUnknown, AsOf: time.Now(),
	}}, message)
	wait.Signal(c.wake)
	if known.rejected != d.State.Digest {
		known.rejected = d.State.Digest
		c.Event(d.Target, fleet.Event{At: time.Now(), Type: fleet.EventWarning, Reason: "BundleUnavailable", Message: message})
	}
}

func (c *Client) isAwaited(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.targets.awaiting(digest)) > 0
}

// dropPartialsLocked forgets parts of bundles that nobody waits for any more.
func (c *Client) dropPartialsLocked() {
	if len(c.partial) == 0 {
		return
	}
	needed := c.targets.awaitedDigests()
	for digest := range c.partial {
		if !needed[digest] {
			delete(c.partial, digest)
		}
	}
}

// forget drops what is held of targets that are gone, and the server has recorded that.
func (c *Client) forget(done []inFlight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range done {
		c.targets.forget(f.target, f.status.Version)
	}
}
