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
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Application is one target of an agent in the form of the polling API.
type Application struct {
	rollout.AgentTarget
	Source      fleet.Source // the source for this agent
	Environment string
}

// Applications returns the desired state of an agent, by tenant and name of the deployments, and a tag that is
// equal if and only if the state is. It omits released targets. A poll is a sign of life: the agent is present
// for one lease after it.
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
			if err != nil { // a label is missing: the target keeps its state, and shows the error elsewhere
				source = d.Source
			}
			if t.Desired.Digest != "" && t.Desired.SourceRevision != d.SourceRevision {
				source = fleet.Source{} // the source at the time of the choice is no longer known
			}
			// An agent that is ahead of the server, or may be, must not delete anything.
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

// deploymentsOn reads the deployments of an agent's targets in pages.
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

// tagOf returns a hash of what a reader acts on, without its own reports.
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

// WaitApplications is Applications for a caller with a tag: it waits until there is a change, for a limited
// time, and then returns false.
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
		s.waiters.watch(waiting, nil) // any edit during the read counts
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

// waiters wakes calls that wait for the applications of an agent. The zero value is ready.
type waiters struct {
	mu  sync.Mutex
	all map[*waiter]struct{}
}

type waiter struct {
	agent       fleet.AgentID
	deployments map[fleet.DeploymentID]bool // nil: any
	woken       wait.Signal
}

func (b *waiters) add(agent fleet.AgentID) *waiter {
	made := &waiter{agent: agent, woken: wait.NewSignal()}
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

// watch also wakes the waiter for edits of these deployments, nil meaning any: not every edit changes the
// desired state.
func (b *waiters) watch(one *waiter, deployments map[fleet.DeploymentID]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one.deployments = deployments
}

// wake wakes all waiters that one of the changes affects; no changes affect all.
func (b *waiters) wake(changes []store.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for one := range b.all {
		if len(changes) == 0 || one.concerned(changes) {
			one.woken.Set()
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

// Run wakes waiting polls for changes, until ctx ends.
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
		s.cfg.Log.Warn("following changes for polling agents failed: starting again", obs.KeyError, err)
		s.waiters.wake(nil)
		s.leases.markDoubted(nil)
		wait.For(ctx, time.Second)
	}
}
