package link

import (
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// laterAfter is how long the server has for its first Welcome before the engine is given what was left for
// later. It is a backstop, for connections that hang: one that fails ends the wait at once.
const laterAfter = 10 * time.Second

// Resume sets the engine of an agent, which runs already, and the targets that it found in the cluster. It is called while
// there is no connection: before Run, or by Config.Disconnected.
//
// The engine is given later when the server turns out to be away, and not at all when it is there to say
// something newer, or the same.
func (c *Client) Resume(agent fleet.AgentID, running Engine, found []engine.Held, later []engine.Desired) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setAgentLocked(agent)
	c.engine = running
	for _, h := range found {
		c.targets.recovered(h)
	}
	for _, d := range later {
		c.targets.get(d.Target).deferred = &d
	}
}

// serveLater gives the engine what was left for later, unless there is a connection.
func (c *Client) serveLater() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected || c.engine == nil {
		return
	}
	for _, d := range c.targets.takeDeferred() {
		c.targets.received(d.Target, d.State)
		c.engine.Set(d)
	}
}
