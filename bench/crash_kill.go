package main

import (
	"context"
	"fmt"
)

// killServer kills the server with kill −9 and restarts it immediately. It returns the number of connections
// after which all agents are back.
func (c *crash) killServer(ctx context.Context) (connects int, err error) {
	connects = c.fleet.connects() + c.fleet.n
	c.station.Kill()
	return connects, c.station.restart(ctx)
}

// killDatabase kills PostgreSQL with kill −9 and restarts it immediately. Agents need not notice.
func (c *crash) killDatabase(ctx context.Context) (connects int, err error) {
	if err := c.station.pg.kill(ctx); err != nil {
		return 0, err
	}
	return 0, c.station.pg.start()
}

// measureBytes measures the traffic of a reconnect: without changes, with a change for one group, and with one
// for all.
func (c *crash) measureBytes(ctx context.Context, r *rigging) error {
	var each []float64
	changed := []int{0, 1, crashGroups}
	for _, groups := range changed {
		bytes, err := c.reconnect(ctx, groups)
		if err != nil {
			return err
		}
		each = append(each, float64(bytes)/float64(c.fleet.n))
		name := fmt.Sprintf("%s.reconnect_bytes_per_agent.%d_of_%d_changed", c.label, groups, crashGroups)
		if err := r.reportValue(name, each[len(each)-1], "B"); err != nil {
			return err
		}
	}
	return r.reportAll(
		single(c.label+".reconnect_bytes_per_change", each[2]-each[0], "B"),
		// A tenth of the changes has to cost a tenth of the bytes.
		single(c.label+".reconnect_bytes_share_of_1_in_10", (each[1]-each[0])/(each[2]-each[0]), ""),
	)
}

// reconnect kills the server, changes some groups while it is down, and returns the traffic until all agents
// are current again.
func (c *crash) reconnect(ctx context.Context, groups int) (int64, error) {
	pause(ctx, calm)
	connects := c.fleet.connects() + c.fleet.n
	c.station.Kill()
	for g := range groups {
		if err := c.push(ctx, g); err != nil {
			return 0, err
		}
	}
	if err := c.station.restart(ctx); err != nil {
		return 0, err
	}
	if _, err := c.fleet.awaitLinks(ctx, connects); err != nil {
		return 0, err
	}
	lost, err := c.settle(ctx)
	if err != nil {
		return 0, err
	}
	if lost > 0 {
		return 0, fmt.Errorf("%d agents did not catch up in %v", lost, lostAfter)
	}
	return c.fleet.traffic(ctx)
}
