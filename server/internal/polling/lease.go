package polling

import (
	"context"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// defaultPollLease is longer than the longest wait of a poll and one retry: after a longer silence, at
	// least one poll was missed.
	defaultPollLease = 90 * time.Second
	// Replica is what stands for an agent that polls in the listings of connections.
	Replica     = "polling"
	expireLimit = 10 * time.Second
	// expireRetry is the delay before a failed write of the end of a lease is repeated; it doubles up to
	// expireRetryMax.
	expireRetry    = time.Second
	expireRetryMax = time.Minute
)

// pollLeases has the leases of the agents that poll this server. An agent is present while one of its polls is
// open and for one lease after the last response; only the first poll and the end of the lease are written. The
// zero value is ready.
type pollLeases struct {
	mu     sync.Mutex
	leases map[fleet.AgentID]*pollLease
}

type pollLease struct {
	conn  fleet.Connection
	polls int       // open polls
	seen  time.Time // time of the last response
	timer *time.Timer
	// doubted means that the agent may have a newer row: it has polled another server.
	doubted bool
	// expired means that the lease has ended, and failed is how often that could not be written.
	expired bool
	failed  int
}

// polled records a poll of an agent; call done with the response.
func (s *Poller) polled(ctx context.Context, agent fleet.Agent) (done func(), err error) {
	l, fresh := s.leases.begin(agent, s.cfg.Now)
	done = func() { s.leases.end(l, s.cfg.Now(), s.cfg.Lease, func() { s.expire(l) }) }
	if !fresh {
		return done, nil
	}
	if err := s.control.AgentPolls(ctx, l.conn); err != nil {
		// An earlier row of this lease may be open: the lease stays, so that its end is written.
		s.leases.markDoubtedLease(l)
		done()
		return nil, err
	}
	return done, nil
}

// begin counts a poll, and reports whether the presence of the agent must be written.
func (p *pollLeases) begin(agent fleet.Agent, now func() time.Time) (l *pollLease, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases == nil {
		p.leases = map[fleet.AgentID]*pollLease{}
	}
	l = p.leases[agent.ID]
	if l == nil || l.expired {
		at := now()
		l = &pollLease{doubted: true, conn: fleet.Connection{
			SessionID: fleet.NewSessionID(), AgentID: agent.ID, TenantID: agent.TenantID, Replica: Replica, ConnectedAt: at, LastSeenAt: at,
		}}
		p.leases[agent.ID] = l
	}
	l.polls++
	if l.timer != nil {
		l.timer.Stop()
	}
	fresh, l.doubted = l.doubted, false
	return l, fresh
}

// end counts a response. After the last one the lease runs, and then expire is called.
func (p *pollLeases) end(l *pollLease, now time.Time, lease time.Duration, expire func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.polls--
	l.seen = now
	if l.polls > 0 || p.leases[l.conn.AgentID] != l {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(lease, expire)
	} else {
		l.timer.Reset(lease)
	}
}

// expired ends an expired lease; false if it is gone, or polled again. The next poll starts another one.
func (p *pollLeases) expired(l *pollLease) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.polls > 0 || p.leases[l.conn.AgentID] != l {
		return false
	}
	l.expired = true
	return true
}

// again calls expire again for a lease whose end could not be written, unless there is a newer one.
func (p *pollLeases) again(l *pollLease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases[l.conn.AgentID] != l {
		return
	}
	l.timer.Reset(min(expireRetryMax, expireRetry<<min(l.failed, 10)))
	l.failed++
}

// markDoubtedLease lets the presence of an agent be written again at its next poll.
func (p *pollLeases) markDoubtedLease(l *pollLease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.doubted = true
}

func (p *pollLeases) drop(l *pollLease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases[l.conn.AgentID] == l {
		delete(p.leases, l.conn.AgentID)
	}
}

// markDoubted lets presence be written again, at the next poll, for agents that another server has written; no
// changes at all mean that some may have been missed.
func (p *pollLeases) markDoubted(changes []store.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range changes {
		l := p.leases[c.AgentID]
		if c.Kind == store.ChangeConnection && l != nil && c.ID != string(l.conn.SessionID) {
			l.doubted = true
		}
	}
	if len(changes) > 0 {
		return
	}
	for _, l := range p.leases {
		l.doubted = true
	}
}

// stop ends all leases without a write: the server stops and closes its connections.
func (p *pollLeases) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leases {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
	clear(p.leases)
}

// expire writes that an agent no longer polls, with retries: a lost agent must not be shown as present because
// the database was unavailable for a moment.
func (s *Poller) expire(l *pollLease) {
	if !s.leases.expired(l) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), expireLimit)
	defer cancel()
	if err := s.control.AgentDisconnected(ctx, l.conn, l.seen); err != nil {
		s.cfg.Log.Error("recording that an agent no longer polls: retrying", obs.KeyAgent, string(l.conn.AgentID), obs.KeyError, err)
		s.leases.again(l)
		return
	}
	s.leases.drop(l)
}
