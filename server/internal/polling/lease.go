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
	// defaultPollLease is longer than the longest wait of a poll and one more try: who is silent for
	// longer has missed at least one.
	defaultPollLease = 90 * time.Second
	// Replica is what stands for an agent that polls in the listings of connections.
	Replica    = "polling"
	lapseLimit = 10 * time.Second
	// lapseRetry is after what time the end of a lease is written again that could not be; it doubles
	// from one time to the next, up to lapseRetryMax.
	lapseRetry    = time.Second
	lapseRetryMax = time.Minute
)

// pollLeases holds the leases of the agents that poll this server. An agent is present while a poll of it
// is held open and for one lease after the last one was answered; like a stream that comes and goes, only
// the first poll and the end of the lease are written. The zero value is ready.
type pollLeases struct {
	mu     sync.Mutex
	leases map[fleet.AgentID]*pollLease
}

type pollLease struct {
	conn  fleet.Connection
	polls int       // that are being answered
	seen  time.Time // when the last one was answered
	timer *time.Timer
	// doubted says that the agent may have a newer row by now: it has polled another server.
	doubted bool
	// lapsed says that the lease has run out, and failed how often that could not be written.
	lapsed bool
	failed int
}

// polled notes that an agent polls; the caller calls done when it is answered.
func (s *Poller) polled(ctx context.Context, agent fleet.Agent) (done func(), err error) {
	l, fresh := s.leases.begin(agent, s.cfg.Now)
	done = func() { s.leases.end(l, s.cfg.Now(), s.cfg.Lease, func() { s.lapse(l) }) }
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

// begin counts a poll, and reports whether the presence of the agent is to be written.
func (p *pollLeases) begin(agent fleet.Agent, now func() time.Time) (l *pollLease, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases == nil {
		p.leases = map[fleet.AgentID]*pollLease{}
	}
	l = p.leases[agent.ID]
	if l == nil || l.lapsed {
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

// end counts an answer. After the last one the lease runs, and then lapse is called.
func (p *pollLeases) end(l *pollLease, now time.Time, lease time.Duration, lapse func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.polls--
	l.seen = now
	if l.polls > 0 || p.leases[l.conn.AgentID] != l {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(lease, lapse)
	} else {
		l.timer.Reset(lease)
	}
}

// lapsed ends a lease that has run out; false when it is gone, or polled again. The next poll begins
// another one.
func (p *pollLeases) lapsed(l *pollLease) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.polls > 0 || p.leases[l.conn.AgentID] != l {
		return false
	}
	l.lapsed = true
	return true
}

// again has lapse called once more for a lease whose end could not be written, unless there is a newer one.
func (p *pollLeases) again(l *pollLease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases[l.conn.AgentID] != l {
		return
	}
	l.timer.Reset(min(lapseRetryMax, lapseRetry<<min(l.failed, 10)))
	l.failed++
}

// markDoubtedLease has the presence of an agent written again at its next poll.
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

// markDoubted has presence written again, at the next poll, of agents that somebody else has written of; no
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

// stop ends all leases without a word: the server stops, and closes what it has open.
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

// lapse writes that an agent polls no more, sooner or later: who is gone must not read as present because
// the database was away for a moment.
func (s *Poller) lapse(l *pollLease) {
	if !s.leases.lapsed(l) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lapseLimit)
	defer cancel()
	if err := s.control.AgentDisconnected(ctx, l.conn, l.seen); err != nil {
		s.cfg.Log.Error("recording that an agent polls no more, trying again", obs.KeyAgent, string(l.conn.AgentID), obs.KeyError, err)
		s.leases.again(l)
		return
	}
	s.leases.drop(l)
}
