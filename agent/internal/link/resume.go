package link

import (
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// deferredTimeout is how long the server has for its first Welcome before the engine gets the deferred states. It is for
// connections that hang: a connection that fails ends the wait at once.
const deferredTimeout = 10 * time.Second

// Resume sets the engine of an agent, which runs already, and the targets that it found in the cluster. It is called while
// there is no connection: before Run, or by Config.Disconnected.
//
// The engine gets the deferred states when the server turns out to be unavailable. A server that is available sends newer
// states instead, or the same.
func (c *Client) Resume(agent fleet.AgentID, running Engine, found []engine.Held, deferred []engine.Desired) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setAgentLocked(agent)
	c.engine = running
	for _, h := range found {
		c.targets.recovered(h)
	}
	for _, d := range deferred {
		c.targets.get(d.Target).deferred = &d
	}
}

// deliverDeferred delivers the deferred states to the engine, unless there is a connection.
func (c *Client) deliverDeferred() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readiness.connected || c.engine == nil {
		return
	}
	for _, d := range c.targets.takeDeferred() {
		c.targets.received(d.Target, d.State)
		c.engine.Set(d)
	}
}
