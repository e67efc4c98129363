package polling

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/pause"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Application is one target of an agent as the polling contract tells of it.
type Application struct {
	rollout.AgentTarget
	Source      fleet.Source // as it is for this agent
	Environment string
}

// Applications returns what an agent has to run, by the tenants and names of the deployments, and a
// tag that is equal exactly when that is. What an agent has let go of is not among it.
// To ask is a sign of life: an agent that polls is present for one lease after it has.
func (s *Poller) Applications(ctx context.Context, agent fleet.Agent) ([]Application, string, error) {
	done, err := s.polled(ctx, agent)
	if err != nil {
		return nil, "", err
	}
	defer done()
	return s.applications(ctx, agent)
}

func (s *Poller) applications(ctx context.Context, agent fleet.Agent) ([]Application, string, error) {
	var out []Application
	err := s.store.View(ctx, func(tx store.Tx) error {
		out = out[:0]
		targets, err := s.control.AgentTargets(ctx, tx, agent)
		if err != nil {
			return err
		}
		deployments, err := deploymentsOn(ctx, tx, agent, targets)
		if err != nil {
			return err
		}
		for _, t := range targets {
			d, ok := deployments[t.DeploymentID]
			if !ok || t.Released() {
				continue
			}
			source, _, err := d.Source.For(agent)
			if err != nil { // it lacks a label: the target keeps what it has, and says so elsewhere
				source = d.Source
			}
			if t.Desired.Digest != "" && t.Desired.SourceRevision != d.SourceRevision {
				source = fleet.Source{} // what it was when the bundle was chosen is not known any more
			}
			// Whoever is ahead of the server, or may be, deletes nothing on its word.
			t.Desired.HoldPrune = t.Desired.HoldPrune || s.planner.Ahead(t.Target)
			out = append(out, Application{AgentTarget: t, Source: source, Environment: d.Environment})
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("reading the applications of agent %q: %w", agent.Name, err)
	}
	tag, err := tagOf(out)
	return out, tag, err
}

// deploymentsOn reads the deployments of an agent's targets by page, not one by one.
func deploymentsOn(ctx context.Context, tx store.Tx, agent fleet.Agent, targets []rollout.AgentTarget) (map[fleet.DeploymentID]fleet.Deployment, error) {
	out := map[fleet.DeploymentID]fleet.Deployment{}
	seen := map[fleet.TenantID]bool{}
	for _, t := range targets {
		if seen[t.TenantID] {
			continue
		}
		seen[t.TenantID] = true
		for page := (store.Page{Limit: 500}); ; {
			list, err := tx.Deployments().List(ctx, t.TenantID, store.DeploymentFilter{Page: page, Agent: agent.ID})
			if err != nil {
				return nil, err
			}
			for _, d := range list {
				out[d.ID] = d
			}
			if len(list) < page.Limit {
				break
			}
			last := list[len(list)-1]
			page.After, page.AfterID = last.Name, string(last.ID)
		}
	}
	return out, nil
}

// tagOf is over what a reader acts on: what is reported back is not part of it.
func tagOf(applications []Application) (string, error) {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, a := range applications {
		err := enc.Encode([]any{a.ID, a.Tenant, a.DeploymentName, a.Environment, a.Source, a.Desired})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:32], nil
}

// WaitApplications is Applications for a caller that has those of a tag: it waits until there is
// something else to tell, at most for a while, and then reports false.
func (s *Poller) WaitApplications(ctx context.Context, agent fleet.Agent, tag string, wait time.Duration) ([]Application, string, bool, error) {
	done, err := s.polled(ctx, agent)
	if err != nil {
		return nil, "", false, err
	}
	defer done()
	waiting := s.waiters.add(agent.ID)
	defer s.waiters.remove(waiting)
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		s.waiters.watch(waiting, nil) // an edit while we read counts, whatever it is of
		applications, now, err := s.applications(ctx, agent)
		if err != nil || now != tag {
			return applications, now, err == nil, err
		}
		s.waiters.watch(waiting, deploymentIDs(applications))
		select {
		case <-ctx.Done():
			return nil, "", false, ctx.Err()
		case <-timeout.C:
			return applications, now, false, nil
		case <-waiting.woken:
		}
	}
}

// waiters wake those who wait for the applications of an agent. The zero value is ready.
type waiters struct {
	mu  sync.Mutex
	all map[*waiter]struct{}
}

type waiter struct {
	agent       fleet.AgentID
	deployments map[fleet.DeploymentID]bool // nil: any
	woken       chan struct{}
}

func (b *waiters) add(agent fleet.AgentID) *waiter {
	made := &waiter{agent: agent, woken: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[*waiter]struct{}{}
	}
	b.all[made] = struct{}{}
	return made
}

func (b *waiters) remove(one *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, one)
}

func deploymentIDs(applications []Application) map[fleet.DeploymentID]bool {
	out := make(map[fleet.DeploymentID]bool, len(applications))
	for _, a := range applications {
		out[a.DeploymentID] = true
	}
	return out
}

// watch wakes the waiter for edits of these deployments too, nil meaning any: not every edit
// changes what is desired.
func (b *waiters) watch(one *waiter, deployments map[fleet.DeploymentID]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one.deployments = deployments
}

// wake wakes everybody whom one of the changes concerns; none given concerns everybody.
func (b *waiters) wake(changes []store.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for one := range b.all {
		if len(changes) == 0 || one.concerned(changes) {
			select {
			case one.woken <- struct{}{}:
			default:
			}
		}
	}
}

func (b *waiter) concerned(changes []store.Change) bool {
	for _, c := range changes {
		switch {
		case c.Kind == store.ChangeDesired && c.AgentID == b.agent:
			return true
		case c.Kind == store.ChangeDeployment && (b.deployments == nil || b.deployments[c.DeploymentID]):
			return true
		case c.Kind == store.ChangeAgent && c.ID == string(b.agent):
			return true
		}
	}
	return false
}

// Run wakes polls that wait as changes come, until ctx ends.
func (s *Poller) Run(ctx context.Context) error {
	defer s.leases.stop()
	for {
		err := s.feed.FollowAll(ctx, func(changes []store.Change) {
			s.waiters.wake(changes)
			s.leases.markDoubted(changes)
		})
		if ctx.Err() != nil {
			return nil
		}
		s.cfg.Log.Warn("following changes for agents that poll broke off, starting again", obs.KeyError, err)
		s.waiters.wake(nil)
		s.leases.markDoubted(nil)
		pause.For(ctx, time.Second)
	}
}
