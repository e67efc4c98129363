package rollout

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// refusedVersion returns the message for a target whose agent reports a version that no server can have issued.
func refusedVersion(has, known fleet.Version) string {
	return fmt.Sprintf("the agent reports generation %d of epoch %d, but the server has issued at most generation %d of epoch %d: the report is refused "+
		"and nothing is sent. Check the inventory ConfigMap of this target in the agent's namespace",
		has.Generation, has.Epoch, known.Generation, known.Epoch)
}

// refuseVersion records that an agent reports an implausible version. The version itself is not stored: the
// next generation continues from the stored one.
func (s *Planner) refuseVersion(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
	known := s.highestGiven(t)
	changed, err := tx.Targets().SetObserved(ctx, t.TenantID, []store.AgentReport{{Agent: t.AgentID, Report: store.Report{Target: t.ID, Observed: fleet.Observed{
		Version: t.Observed.Version, Digest: t.Observed.Digest, Sync: fleet.SyncFailed, Health: fleet.HealthUnknown, AsOf: s.cfg.Now(),
		Message: refusedVersion(has, known),
	}}}})
	if err != nil || len(changed) == 0 {
		return err
	}
	return s.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventWarning, Reason: fleet.ReasonVersionRefused, Agent: t.AgentName, Deployment: t.DeploymentName,
		Message: refusedVersion(has, known),
	})
}

// catchUpSoon handles an agent that is ahead of the server: immediately, or later if the same target was ahead
// several times in a row.
func (s *Planner) catchUpSoon(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
	if !s.aheadLimiter.allow(s.cfg.Now(), t.ID, t.AgentID, has) {
		return nil
	}
	return s.catchUp(ctx, tx, t, has)
}

// The backoff of a target whose agent is ahead repeatedly. A restored backup causes it once.
const (
	aheadBurst = 3
	aheadFirst = time.Second
	aheadMost  = 5 * time.Minute
	aheadKept  = 1024 // targets above which quiet ones are dropped
)

// aheadLimiter limits how often the source of one target is read again because its agent is ahead. The zero
// value is ready.
type aheadLimiter struct {
	mu      sync.Mutex
	targets map[fleet.TargetID]*aheadTarget
	changed wait.Signal // made by due; holds one signal
}

type aheadTarget struct {
	times     int
	last      time.Time
	notBefore time.Time
	waiting   bool // to be handled at notBefore
	agent     fleet.AgentID
	has       fleet.Version
}

// allow reports whether a target may be handled now. If not, due returns it later.
func (a *aheadLimiter) allow(now time.Time, id fleet.TargetID, agent fleet.AgentID, has fleet.Version) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.targets == nil {
		a.targets = map[fleet.TargetID]*aheadTarget{}
	}
	if len(a.targets) >= aheadKept {
		for id, t := range a.targets {
			if !t.waiting && now.Sub(t.last) > 2*aheadMost {
				delete(a.targets, id)
			}
		}
	}
	t := a.targets[id]
	if t == nil || now.Sub(t.last) > 2*aheadMost {
		t = &aheadTarget{}
		a.targets[id] = t
	}
	t.agent, t.has = agent, has
	if now.Before(t.notBefore) {
		t.waiting = true
		a.signalLocked()
		return false
	}
	t.times, t.last, t.waiting = t.times+1, now, false
	if over := t.times - aheadBurst; over >= 0 {
		t.notBefore = now.Add(min(aheadMost, aheadFirst<<min(over, 16)))
	}
	return true
}

func (a *aheadLimiter) signalLocked() {
	if a.changed == nil {
		a.changed = wait.NewSignal()
	}
	a.changed.Set()
}

// due returns the targets whose time has come, how long the next one must wait, and a signal for more.
func (a *aheadLimiter) due(now time.Time) (ready map[fleet.TargetID]aheadTarget, pause time.Duration, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = wait.NewSignal()
	}
	ready, pause = map[fleet.TargetID]aheadTarget{}, time.Hour
	for id, t := range a.targets {
		switch {
		case !t.waiting:
		case now.Before(t.notBefore):
			pause = min(pause, t.notBefore.Sub(now))
		default:
			t.waiting = false
			ready[id] = *t
		}
	}
	return ready, pause, a.changed
}

// FollowAhead handles targets that had to wait, until ctx ends.
func (s *Planner) FollowAhead(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ready, pause, changed := s.aheadLimiter.due(s.cfg.Now())
		for id, t := range ready {
			if err := s.AgentAhead(ctx, fleet.Agent{ID: t.agent}, id, t.has); err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("catching up with an agent that is ahead", obs.KeyTarget, string(id), obs.Err(err))
			}
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
		}
	}
}
