package link

// startSnapshot is called when the server starts to send the states that differ. They include everything that an earlier
// connection left waiting for a bundle.
func (c *Client) startSnapshot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshotComplete = false
	c.targets.dropAwaited()
	c.updatePendingLocked()
}

// completeSnapshot is called when the server has sent all states that differ. Some may still wait for their bundle.
func (c *Client) completeSnapshot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshotComplete = true
	_ = c.targets.takeDeferred() // the server has sent a newer state, or none is desired
	c.dropPartialsLocked()
	// Targets that wait for nothing have no failure of the link any more.
	c.statuses.clearFailuresExcept(c.targets.isAwaited)
	c.wake.Set()
	c.updatePendingLocked()
}

// InvalidateSnapshot makes the engine wait with prunes until the next snapshot. It is called when the engine could not
// change the cluster for a while: the server may list objects again that its last snapshot did not have.
func (c *Client) InvalidateSnapshot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshotComplete = false
	if c.engine != nil {
		c.updatePendingLocked()
	}
}

// updatePendingLocked tells the engine how many states are pending, if that has changed. A lost connection changes nothing:
// a complete snapshot stays complete (but see InvalidateSnapshot), and an incomplete one stays incomplete.
func (c *Client) updatePendingLocked() {
	n := c.targets.awaited
	if !c.snapshotComplete {
		n++
	}
	if n != c.pending {
		c.pending = n
		c.engine.Pending(n)
	}
}
