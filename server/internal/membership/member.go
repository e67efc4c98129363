package membership

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures a member. Zero fields take their defaults.
type Config struct {
	// Shared says that other servers may use the same database.
	Shared bool
	// Address is how other replicas reach this one; "" when they cannot.
	Address string
	// Version of the server.
	Version string
	// BeatEvery is how often the replica writes its heartbeat; default 3 s when the database is
	// shared, else 10 s: then it only bounds how far "last seen" may be off after a crash.
	BeatEvery time.Duration
	// BeatTimeout is the time that counts as one heartbeat when the silence of other replicas is measured;
	// default BeatEvery.
	BeatTimeout time.Duration
	// Reopen opens the rows of this replica's connections again, after another replica took it for
	// dead and closed them. It may be nil.
	Reopen func(context.Context) error
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Member is this process as one of the replicas that share a database. It is safe for concurrent use.
type Member struct {
	cfg      Config
	store    store.Store
	replica  fleet.ServerReplica
	replicas *replicaSet
	alive    store.Lock // that the others watch; nil when they do not
}

// New makes a member; it does no I/O.
func New(cfg Config, st store.Store) *Member {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Reopen == nil {
		cfg.Reopen = func(context.Context) error { return nil }
	}
	cfg.BeatEvery = cmp.Or(cfg.BeatEvery, beatAlone)
	if cfg.Shared {
		cfg.BeatEvery = min(cfg.BeatEvery, beatShared)
	}
	cfg.BeatTimeout = cmp.Or(cfg.BeatTimeout, cfg.BeatEvery)
	replica := newReplica(cfg)
	return &Member{cfg: cfg, store: st, replica: replica, replicas: newReplicaSet(replica.ID)}
}

// ID names this replica.
func (m *Member) ID() string { return m.replica.ID }

// Run writes heartbeats and watches the other replicas until ctx ends, and then leaves.
func (m *Member) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.beat(ctx) })
	g.Go(func() error { return m.holdAlive(ctx) })
	g.Go(func() error { return m.watchOthers(ctx) })
	return g.Wait()
}
