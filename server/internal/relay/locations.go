package relay

import (
	"context"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// locationTTL is how long it is remembered which servers an agent is connected to, and that it is connected to none. The
	// change feed ends it earlier; this is for a server that gets changes late.
	locationTTL = 2 * time.Second
	// locationRetry is how old a location may be after it was found to be wrong, so that the requests for an agent whose
	// server died do not query the database each.
	locationRetry = 250 * time.Millisecond
	// locationTimeout limits a query.
	locationTimeout = 3 * time.Second
)

// locations finds the servers that an agent is connected to. Concurrent requests for an agent share one query. It is safe
// for concurrent use.
type locations struct {
	find func(ctx context.Context, agent fleet.AgentID) ([]fleet.ServerReplica, error)

	mu    sync.Mutex
	known map[fleet.AgentID]*location
	swept time.Time
}

// location is a query, or its result after done is closed.
type location struct {
	at      time.Time // when the query began
	done    chan struct{}
	servers []fleet.ServerReplica
	err     error
}

func newLocations(find func(ctx context.Context, agent fleet.AgentID) ([]fleet.ServerReplica, error)) *locations {
	return &locations{find: find, known: map[fleet.AgentID]*location{}}
}

// of returns the other servers that an agent is connected to, as they were at most maxAge ago.
func (l *locations) of(ctx context.Context, agent fleet.AgentID, maxAge time.Duration) ([]fleet.ServerReplica, error) {
	one := l.get(ctx, agent, maxAge)
	select {
	case <-one.done:
		return one.servers, one.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *locations) get(ctx context.Context, agent fleet.AgentID, maxAge time.Duration) *location {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if one := l.known[agent]; one != nil && now.Sub(one.at) <= maxAge {
		return one
	}
	l.sweepLocked(now)
	one := &location{at: now, done: make(chan struct{})}
	l.known[agent] = one
	go l.query(context.WithoutCancel(ctx), agent, one) // others may wait for it
	return one
}

func (l *locations) query(ctx context.Context, agent fleet.AgentID, one *location) {
	ctx, cancel := context.WithTimeout(ctx, locationTimeout)
	defer cancel()
	one.servers, one.err = l.find(ctx, agent)
	close(one.done)
	if one.err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.known[agent] == one {
			delete(l.known, agent)
		}
	}
}

// forget ends what is known of an agent, because it has connected or disconnected. The result of a query that has begun
// earlier is not kept.
func (l *locations) forget(agent fleet.AgentID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, agent)
}

// forgetAll ends all that is known, because changes may be lost.
func (l *locations) forgetAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.known)
}

// sweepLocked removes what is too old, so that the size is limited by the requests of a short time.
func (l *locations) sweepLocked(now time.Time) {
	if now.Sub(l.swept) < locationTTL {
		return
	}
	l.swept = now
	for agent, one := range l.known {
		if now.Sub(one.at) > locationTTL+locationTimeout {
			delete(l.known, agent)
		}
	}
}
