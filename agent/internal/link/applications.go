package link

import "github.com/kedge-dev/kedge/internal/fleet"

// sentApplications tracks the Applications that the server of a connection knows. Only the writer uses it after it has
// started.
type sentApplications struct {
	accepted bool // by Welcome
	last     *fleet.ForeignApplications
}

// nextApplications returns the Applications to send now; nil if the server knows them.
func (n *connection) nextApplications() *fleet.ForeignApplications {
	now := n.Client.applications.Load()
	if !n.applications.accepted || now == n.applications.last {
		return nil
	}
	n.applications.last = now
	return now
}

// ListApplications returns the function with which the engine of an agent lists the Applications that it does not manage.
// The function does not block.
func (c *Client) ListApplications(agent fleet.AgentID) func(fleet.ForeignApplications) {
	return func(l fleet.ForeignApplications) {
		agentReporter{c, agent}.report(func() {
			c.applications.Store(&l)
			c.wake.Set()
		})
	}
}
