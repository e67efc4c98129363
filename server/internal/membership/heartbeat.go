package membership

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	beatAlone  = 10 * time.Second
	beatShared = 3 * time.Second
	// lockRetry is how long to wait for a name that another replica still holds.
	lockRetry = 250 * time.Millisecond
)

// A replica whose beats do not change for this many of our own gets no work (a lock keeps the work on one
// replica even if that was wrong), and later counts as dead: 5 s and 10 s.
const (
	passedOverBeats = 5. / 3
	deadBeats       = 10. / 3
)

func newReplica(cfg Config) fleet.ServerReplica {
	return fleet.ServerReplica{
		ID: "srv-" + strings.ToLower(rand.Text()[:20]), Address: cfg.Address, Version: cfg.Version, StartedAt: cfg.Now(),
	}
}

// Join makes this server one of the replicas. A server that has the database to itself knows that all others are
// gone; in a shared database it watches them first.
func (m *Member) Join(ctx context.Context, tx store.Tx) error {
	others, err := tx.Replicas().List(ctx)
	if err != nil {
		return err
	}
	live := []string{m.replica.ID}
	for _, r := range others {
		if m.cfg.Shared {
			live = append(live, r.ID)
		} else if err := m.closeReplica(ctx, tx, r); err != nil {
			return err
		}
	}
	m.replicas.set(live, nil)
	if err := m.beatIn(ctx, tx); err != nil {
		return err
	}
	// Close connections of unknown servers: a restored backup lists connections of servers that are elsewhere.
	_, err = tx.Connections().CloseOfServerAllTenants(ctx, "", time.Time{})
	return err
}

// closeReplica closes the connections of a replica that is gone, as of its last beat, and removes its row.
func (m *Member) closeReplica(ctx context.Context, tx store.Tx, r fleet.ServerReplica) error {
	if _, err := tx.Connections().CloseOfServerAllTenants(ctx, r.ID, r.BeatAt); err != nil {
		return err
	}
	return tx.Replicas().Remove(ctx, r.ID)
}

// beat writes the heartbeat of this server at an interval and, in a shared database, reads those of the others.
// It is the only write of an idle server.
func (m *Member) beat(ctx context.Context) error {
	tick := time.NewTicker(m.cfg.BeatEvery)
	defer tick.Stop()
	watch := newBeatTracker(m.replica.ID, m.cfg.BeatTimeout)
	for {
		select {
		case <-ctx.Done():
			m.leave(ctx)
			return nil
		case <-tick.C:
		}
		if err := m.beatOnce(ctx, watch); err != nil && ctx.Err() == nil {
			m.cfg.Log.Error("writing the heartbeat of this server", obs.KeyError, err)
		}
	}
}

func (m *Member) beatOnce(ctx context.Context, watch *beatTracker) error {
	if !m.cfg.Shared {
		return m.store.Update(ctx, func(tx store.Tx) error { return m.beatIn(ctx, tx) })
	}
	var known []fleet.ServerReplica
	err := m.store.Update(ctx, func(tx store.Tx) (err error) {
		if known, err = tx.Replicas().List(ctx); err != nil {
			return err
		}
		return m.beatIn(ctx, tx)
	})
	if err != nil {
		return err
	}
	seen := watch.observe(time.Now(), known)
	m.replicas.set(seen.live, seen.beaten)
	if seen.missing {
		// Another replica took this server for dead and closed its connections.
		m.cfg.Log.Warn("the heartbeat of this server was too late: recording its connections again")
		if err := m.cfg.Reopen(ctx); err != nil {
			return err
		}
	}
	for _, r := range seen.dead {
		m.cfg.Log.Warn("a server replica is gone", "server", r.ID, obs.KeyVersion, r.Version, obs.KeyAddress, r.Address, "lastBeat", r.BeatAt)
		if err := m.store.Update(ctx, func(tx store.Tx) error { return m.closeReplica(ctx, tx, r) }); err != nil {
			return err
		}
	}
	return nil
}

func (m *Member) beatIn(ctx context.Context, tx store.Tx) error {
	r := m.replica
	r.BeatAt = m.cfg.Now()
	return tx.Replicas().Beat(ctx, r)
}

// leave removes this replica at an orderly stop, so that the others need not wait for its beats to be missing.
func (m *Member) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	r := m.replica
	r.BeatAt = m.cfg.Now()
	if err := m.store.Update(ctx, func(tx store.Tx) error { return m.closeReplica(ctx, tx, r) }); err != nil {
		m.cfg.Log.Warn("removing this server from the replicas", obs.KeyError, err)
	}
}

// beatTracker finds out which replicas are live by whether their beats change, by the clock of this machine: the
// clocks of machines need not agree.
type beatTracker struct {
	self  string
	every time.Duration
	last  time.Time // when we last looked; zero before the first time
	beats map[string]seenBeat
}

type seenBeat struct {
	at    time.Time // by the clock of the other
	since time.Time // when we first saw it
}

type observation struct {
	live    []string
	beaten  []string // whose beat is another than before
	dead    []fleet.ServerReplica
	missing bool // we were there, and now we are not
}

func newBeatTracker(self string, every time.Duration) *beatTracker {
	return &beatTracker{self: self, every: every, beats: map[string]seenBeat{}}
}

// observe evaluates the rows as they were before our own beat.
func (w *beatTracker) observe(now time.Time, known []fleet.ServerReplica) observation {
	out := observation{live: []string{w.self}, missing: true}
	// While this replica could not read, silence does not count: perhaps the database was away for all replicas.
	gap := !w.last.IsZero() && now.Sub(w.last) > 2*w.every
	before := w.beats
	w.last, w.beats = now, map[string]seenBeat{}
	for _, r := range known {
		if r.ID == w.self {
			out.missing = false
			continue
		}
		seen, ok := before[r.ID]
		if ok && !seen.at.Equal(r.BeatAt) {
			out.beaten = append(out.beaten, r.ID)
		}
		if !ok || gap || !seen.at.Equal(r.BeatAt) {
			seen = seenBeat{at: r.BeatAt, since: now}
		}
		silent := now.Sub(seen.since).Seconds() / w.every.Seconds()
		if silent >= deadBeats {
			out.dead = append(out.dead, r)
			continue
		}
		w.beats[r.ID] = seen
		if silent <= passedOverBeats {
			out.live = append(out.live, r.ID)
		}
	}
	return out
}
