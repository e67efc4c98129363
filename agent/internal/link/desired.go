package link

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// handleDesired delivers a desired state to the engine, after it has fetched the bundle unless the frame contains it.
func (n *connection) handleDesired(ctx context.Context, m *agentv1.Desired) error {
	d, err := wire.ParseDesired(m)
	if err != nil {
		return err
	}
	n.log.Info("desired state received", obs.KeyDeployment, d.Deployment, obs.KeyTarget, string(d.Target),
		obs.KeyGeneration, d.State.Generation, obs.KeyCommit, d.State.Commit, "tombstone", d.State.Tombstone, "detached", d.State.Detached)
	if d.State.Tombstone || d.State.Detached || d.Source != nil {
		n.deliver(d, nil)
		return nil
	}
	if len(d.Bundle) > 0 {
		set, err := n.unpack(d.State.Digest, d.Bundle)
		if err == nil {
			n.deliver(d, set)
			return nil
		}
		n.log.Warn("the bundle in the frame cannot be unpacked, fetching it", obs.KeyTarget, string(d.Target), obs.Err(err))
	}
	d.Bundle = nil
	n.mu.Lock()
	n.targets.await(d)
	if n.snapshotComplete {
		n.dropPartialsLocked()
	}
	n.updatePendingLocked()
	n.mu.Unlock()
	n.fetch(ctx, d.State.Digest)
	return nil
}

// deliver passes a desired state to the engine.
func (c *Client) deliver(d wire.Desired, objects *manifest.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliverLocked(d, objects)
	c.updatePendingLocked()
}

// deliverLocked calls Set, which does not block, with the lock held, so that two states of one target stay in order. The
// state counts as pending until Set has returned.
func (c *Client) deliverLocked(d wire.Desired, objects *manifest.Set) {
	c.statuses.clearFailure(d.Target)
	c.engine.Set(engine.Desired{Target: d.Target, Tenant: d.Tenant, Deployment: d.Deployment, State: d.State, Objects: objects, Source: d.Source})
	c.targets.delivered(d.Target, d.State)
}

// deliverFetched delivers the desired states that wait for a bundle.
func (c *Client) deliverFetched(digest string, set *manifest.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.targets.awaiting(digest) {
		c.deliverLocked(d, set)
	}
	c.updatePendingLocked()
}

// reportUnavailable reports that a bundle is unavailable for each target that waits for it. The targets stay pending: their
// objects may be those that other targets no longer have.
func (c *Client) reportUnavailable(digest string, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.targets.awaiting(digest) {
		c.reportUnavailableLocked(d, reason)
	}
}

func (c *Client) reportUnavailableLocked(d wire.Desired, reason error) {
	known, version := c.targets.get(d.Target), d.State.Version
	if known.state != nil {
		version = known.state.Version // the status is about what is in the cluster
	}
	message := fmt.Sprintf("the bundle of commit %s is unavailable; this agent prunes nothing until it is available: %v", d.State.Commit, reason)
	c.statuses.setFailure(engine.Status{Target: d.Target, Observed: fleet.Observed{
		Version: version, Health: fleet.HealthUnknown, AsOf: time.Now(),
	}}, fleet.Cause{Reason: fleet.ReasonBundleUnavailable, Message: message})
	c.wake.Set()
	if known.rejected != d.State.Digest {
		known.rejected = d.State.Digest
		c.Event(d.Target, fleet.Event{At: time.Now(), Type: fleet.EventWarning, Reason: fleet.ReasonBundleUnavailable, Message: message})
	}
}

// isAwaited reports whether a target waits for a bundle.
func (c *Client) isAwaited(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.targets.awaiting(digest)) > 0
}

// dropPartialsLocked drops incomplete downloads that no target waits for.
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

// forget drops the states of targets that are deleted or detached, after the server has recorded that.
func (c *Client) forget(finished []sentStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range finished {
		c.targets.forget(s.target, s.status.Version)
	}
}
