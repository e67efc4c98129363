package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

const (
	// crashGroups is how many deployments there are, each for its own part of the agents: a push
	// changes one of them.
	crashGroups = 10
	// pushEvery is the interval of changes, which never stop.
	pushEvery = 200 * time.Millisecond
	// calm is the pause between kills after all agents are back: an agent with a short connection reconnects
	// more slowly every time, as intended.
	calm = 6 * time.Second
	// around is how long changes are in flight before a crash, and after it is over.
	around = 3 * time.Second
	// lostAfter is how long an update may take before it counts as lost.
	lostAfter = 2 * time.Minute
)

// benchCrash is B7: kill −9 of the server, then of the database, with agents connected and changes in
// flight.
func benchCrash(ctx context.Context, r *rigging) error {
	n, runs := of(r.options, 50, 300, 1000), of(r.options, 1, 3, 5)
	for _, kind := range r.databases {
		c, err := r.newCrash(ctx, kind, n)
		if err == nil {
			err = c.measure(ctx, r, runs)
			c.fleet.stop()
			err = errors.Join(err, c.station.Stop())
		}
		if err != nil {
			return fmt.Errorf("on %s: %w", kind, err)
		}
	}
	return nil
}

// crash is a server with agents in groups, and a repository in which something changes all the time.
type crash struct {
	*pusher
	station *station
	fleet   *simFleet
	label   string
	made    []change
	count   int
}

// change is one push: the desired content of a group from then on.
type change struct {
	group  int
	digest string
	at     time.Time // when Git had it
}

func (r *rigging) newCrash(ctx context.Context, kind string, n int) (*crash, error) {
	name := "b7-" + kind
	git, repo, err := r.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := r.station(ctx, kind)
	if err != nil {
		return nil, err
	}
	label := func(group int) map[string]string { return map[string]string{"group": fmt.Sprint(group)} }
	tokens, err := r.enroll(ctx, s, n, func(i int) map[string]string { return label(i % crashGroups) })
	if err != nil {
		return nil, err
	}
	c := &crash{
		pusher:  &pusher{name: name, apps: crashGroups, repo: repo, git: git, server: s.Server},
		station: s, label: "B7." + kind,
	}
	if c.fleet, err = r.simulate(ctx, s.agentAddress(), s.CAFile, n, tokens); err != nil {
		return nil, err
	}
	for g := range crashGroups {
		if err := c.push(ctx, g); err != nil {
			return nil, err
		}
		env := apiv1.CreateEnvironment{Name: fmt.Sprintf("group-%d", g), MatchLabels: label(g)}
		if err := s.Call(ctx, http.MethodPost, rig.TenantPath+"/environments", env, nil); err != nil {
			return nil, err
		}
		req := apiv1.CreateDeployment{
			Name: fmt.Sprintf("app-%04d", g), Environment: env.Name,
			Source: apiv1.Source{RepoURL: git.URL(name), Path: fmt.Sprintf("apps/%04d", g)},
		}
		if err := s.Call(ctx, http.MethodPost, rig.TenantPath+"/deployments", req, nil); err != nil {
			return nil, err
		}
	}
	if err := c.installHook(ctx); err != nil {
		return nil, err
	}
	_, err = c.settle(ctx)
	return c, err
}

// measure runs B7: bytes first, while nothing else is running.
func (c *crash) measure(ctx context.Context, r *rigging, runs int) error {
	if err := c.measureBytes(ctx, r); err != nil {
		return err
	}
	handshake, err := handshakeFloor(ctx)
	if err != nil {
		return err
	}
	floor := time.Duration(c.fleet.n) * handshake
	if err := c.measureKills(ctx, r, "server", runs, c.killServer, func(time.Duration) time.Duration { return floor }); err != nil {
		return err
	}
	if c.station.pg == nil {
		return nil
	}
	return c.measureKills(ctx, r, "database", runs, c.killDatabase, func(up time.Duration) time.Duration { return up })
}

// measureKills kills one of the programs several times. The floor of a run may depend on the restart time of
// that program.
func (c *crash) measureKills(ctx context.Context, r *rigging, what string, runs int, kill func(context.Context) (connects int, err error), floor func(time.Duration) time.Duration) error {
	var up, linked, current samples
	lost := 0
	for range runs {
		run, err := c.inFlight(ctx, kill)
		if err != nil {
			return err
		}
		up, linked, current, lost = append(up, run.up), append(linked, run.linked), append(current, run.current), lost+run.lost
	}
	label := c.label + "." + what + "_killed"
	return r.reportAll(
		up.percentile(label+".up_again", 50, 0),
		linked.percentile(label+".all_connected", 50, 0),
		current.percentile(label+".all_current", 50, floor(up.at(50))),
		result{Name: label + ".lost_updates", Value: float64(lost), Runs: runs, Min: float64(lost), Max: float64(lost)},
	)
}

type crashRun struct {
	up, linked, current time.Duration // since the kill
	lost                int
}

// inFlight kills something while changes are pushed all the time, before, during and after.
func (c *crash) inFlight(ctx context.Context, kill func(context.Context) (connects int, err error)) (crashRun, error) {
	pause(ctx, calm)
	pushing, stop := context.WithCancel(ctx)
	defer stop()
	var pusher sync.WaitGroup
	var pushErr error
	pusher.Go(func() { pushErr = c.pushUntil(pushing) })
	finish := func() error {
		stop()
		pusher.Wait()
		return pushErr
	}
	pause(ctx, around)
	killed := time.Now()
	connects, err := kill(ctx)
	up := time.Now()
	if err != nil {
		return crashRun{}, errors.Join(err, finish())
	}
	pause(ctx, around)
	if err := finish(); err != nil {
		return crashRun{}, err
	}
	lost, err := c.settle(ctx)
	if err != nil {
		return crashRun{}, err
	}
	linked, err := c.fleet.awaitLinks(ctx, connects)
	if err != nil {
		return crashRun{}, err
	}
	current := c.currentSince(up)
	if linked.After(current) {
		current = linked
	}
	return crashRun{up: up.Sub(killed), linked: max(0, linked.Sub(killed)), current: max(0, current.Sub(killed)), lost: lost}, nil
}

func (c *crash) pushUntil(ctx context.Context) error {
	tick := time.NewTicker(pushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			// A started push is finished.
			if err := c.push(context.WithoutCancel(ctx), c.count%crashGroups); err != nil {
				return err
			}
		}
	}
}

// push changes the content of one group.
func (c *crash) push(ctx context.Context, group int) error {
	c.count++
	digest, err := c.change(ctx, group, fmt.Sprintf("change-%d", c.count))
	if err == nil {
		c.made = append(c.made, change{group: group, digest: digest, at: time.Now()})
	}
	return err
}

// newest returns the desired content of a group at a time.
func (c *crash) newest(group int, before time.Time) int {
	for i, m := range slices.Backward(c.made) {
		if m.group == group && m.at.Before(before) {
			return i
		}
	}
	return 0
}

// settle waits until every agent has the newest content of its group and the server reports it. It returns the
// number of agents that do not.
func (c *crash) settle(ctx context.Context) (lost int, err error) {
	waiting, cancel := context.WithTimeout(ctx, lostAfter)
	defer cancel()
	var digests []string
	for g := range crashGroups {
		digest := c.made[c.newest(g, time.Now())].digest
		digests = append(digests, digest)
		members := (c.fleet.n + crashGroups - 1 - g) / crashGroups
		if _, err := c.fleet.awaitHolders(waiting, digest, members); err != nil {
			lost += members - c.fleet.holding(digest)
		}
	}
	if lost > 0 || ctx.Err() != nil {
		return lost, ctx.Err()
	}
	return 0, awaitVisible(ctx, c.station.Server, digests...)
}

// currentSince is when the last agent had caught up with everything that was pushed before a time.
func (c *crash) currentSince(before time.Time) (last time.Time) {
	order := map[string]int{}
	for i, m := range c.made {
		order[m.digest] = i
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	for _, past := range c.fleet.history {
		need := c.newest(c.made[order[past[0].digest]].group, before)
		for _, h := range past {
			if order[h.digest] >= need {
				if h.at.After(last) {
					last = h.at
				}
				break
			}
		}
	}
	return last
}
