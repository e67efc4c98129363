package link

import "github.com/kedge-dev/kedge/internal/wait"

// beginSnapshot starts over what is on its way: the server sends everything that differs from what
// is held, and so everything that an earlier connection left wanted.
func (c *Client) beginSnapshot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = false
	c.targets.dropAwaited()
	c.tellPendingLocked()
}

// endSnapshot takes the server's word that nothing else differs. What is still wanted is fetched.
func (c *Client) endSnapshot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = true
	_ = c.targets.takeDeferred() // the server does not want it, or has sent it
	c.dropPartialsLocked()
	// A failure of a target that the server does not want anything of any more is none.
	c.statuses.mendExcept(c.targets.isAwaited)
	wait.Signal(c.wake)
	c.tellPendingLocked()
}

// Doubt takes back the server's word on what there is, until it has spoken again: while the engine could not
// carry it out, something newer may have come. So nothing is pruned that the server has listed since.
func (c *Client) Doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = false
	if c.engine != nil {
		c.tellPendingLocked()
	}
}

// tellPendingLocked tells the engine how much is on its way, when that has changed. When a
// connection is lost nothing changes: what was complete stays so (but see Doubt), and the rest is still missing.
func (c *Client) tellPendingLocked() {
	n := c.targets.awaited
	if !c.complete {
		n++
	}
	if n != c.pending {
		c.pending = n
		c.engine.Pending(n)
	}
}
