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

// A replica whose beats are not seen for this many of our own is passed over when work is given out
// (a lock keeps it to one replica even if that was wrong), or taken for dead: 5 s and 10 s.
const (
	passedOverBeats = 5. / 3
	deadBeats       = 10. / 3
)

func newReplica(cfg Config) fleet.ServerReplica {
	return fleet.ServerReplica{
		ID: "srv-" + strings.ToLower(rand.Text()[:20]), Address: cfg.Address, Version: cfg.Version, StartedAt: cfg.Now(),
	}
}

// Join makes this server one of the replicas. A server that has the database to itself knows
// that all others are gone; in a shared one, they are watched first.
func (s *Member) Join(ctx context.Context, tx store.Tx) error {
	others, err := tx.Replicas().List(ctx)
	if err != nil {
		return err
	}
	live := []string{s.replica.ID}
	for _, r := range others {
		if s.cfg.Shared {
			live = append(live, r.ID)
		} else if err := s.closeReplica(ctx, tx, r); err != nil {
			return err
		}
	}
	s.crew.set(live, nil)
	if err := s.beatIn(ctx, tx); err != nil {
		return err
	}
	// Of servers that nobody knows: a restored backup has connections, and its servers are elsewhere.
	_, err = tx.Connections().CloseOfServerAllTenants(ctx, "", time.Time{})
	return err
}

// closeReplica closes what a replica that is gone left open. Its last beat is when it last heard of its agents.
func (s *Member) closeReplica(ctx context.Context, tx store.Tx, r fleet.ServerReplica) error {
	if _, err := tx.Connections().CloseOfServerAllTenants(ctx, r.ID, r.BeatAt); err != nil {
		return err
	}
	return tx.Replicas().Remove(ctx, r.ID)
}

// beat says again and again that this server is alive and, in a shared database, looks who else is.
// It is the one write of an idle server.
func (s *Member) beat(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.BeatEvery)
	defer tick.Stop()
	watch := newReplicaWatch(s.replica.ID, s.cfg.BeatLapse)
	for {
		select {
		case <-ctx.Done():
			s.leavePlace(ctx)
			return nil
		case <-tick.C:
		}
		if err := s.beatOnce(ctx, watch); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("telling the other servers that this one is alive", obs.KeyError, err)
		}
	}
}

func (s *Member) beatOnce(ctx context.Context, watch *replicaWatch) error {
	if !s.cfg.Shared {
		return s.store.Update(ctx, func(tx store.Tx) error { return s.beatIn(ctx, tx) })
	}
	var known []fleet.ServerReplica
	err := s.store.Update(ctx, func(tx store.Tx) (err error) {
		if known, err = tx.Replicas().List(ctx); err != nil {
			return err
		}
		return s.beatIn(ctx, tx)
	})
	if err != nil {
		return err
	}
	seen := watch.look(time.Now(), known)
	s.crew.set(seen.live, seen.beaten)
	if seen.missing {
		// Somebody took this server for dead and closed its connections.
		s.cfg.Log.Warn("this server was too slow to say that it is alive: telling anew who is connected")
		if err := s.cfg.Reopen(ctx); err != nil {
			return err
		}
	}
	for _, r := range seen.dead {
		s.cfg.Log.Warn("a server replica is gone", "server", r.ID, obs.KeyVersion, r.Version, obs.KeyAddress, r.Address, "lastBeat", r.BeatAt)
		if err := s.store.Update(ctx, func(tx store.Tx) error { return s.closeReplica(ctx, tx, r) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Member) beatIn(ctx context.Context, tx store.Tx) error {
	r := s.replica
	r.BeatAt = s.cfg.Now()
	return tx.Replicas().Beat(ctx, r)
}

// leavePlace ends an orderly stop: the others need not wait.
func (s *Member) leavePlace(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	r := s.replica
	r.BeatAt = s.cfg.Now()
	if err := s.store.Update(ctx, func(tx store.Tx) error { return s.closeReplica(ctx, tx, r) }); err != nil {
		s.cfg.Log.Warn("telling the other servers that this one stops", obs.KeyError, err)
	}
}

// replicaWatch tells the living from the dead by whether their beats change, by our own clock: the
// clocks of machines need not agree.
type replicaWatch struct {
	self  string
	every time.Duration
	last  time.Time // when we last looked; zero before the first time
	beats map[string]seenBeat
}

type seenBeat struct {
	at    time.Time // by the clock of the other
	since time.Time // when we first saw it
}

type sighting struct {
	live    []string
	beaten  []string // whose beat is another than before
	dead    []fleet.ServerReplica
	missing bool // we were there, and now we are not
}

func newReplicaWatch(self string, every time.Duration) *replicaWatch {
	return &replicaWatch{self: self, every: every, beats: map[string]seenBeat{}}
}

// look takes what the table held before our own beat.
func (w *replicaWatch) look(now time.Time, known []fleet.ServerReplica) sighting {
	out := sighting{live: []string{w.self}, missing: true}
	// While we could not look, nobody's silence counts: perhaps the database was away for all.
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
