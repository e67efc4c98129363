package control

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/engineupgrade"
	"github.com/kedge-dev/kedge/server/internal/fairlimit"
	"github.com/kedge-dev/kedge/server/internal/imageupdate"
	"github.com/kedge-dev/kedge/server/internal/membership"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/polling"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures a Service. Zero fields have defaults.
type Config struct {
	// Key is the secret of the server, at least 32 bytes: webhook secrets are derived from it. All replicas
	// have the same.
	Key []byte
	// Sealer encrypts the secrets of credentials; without one they are refused.
	Sealer Sealer
	// Version of the server, for warnings about agents with another one.
	Version string
	// PollInterval is the fallback for lost webhooks; default 30 s.
	PollInterval time.Duration
	// KeepRevisions is the number of kept revisions of a deployment for rollbacks; default 10.
	KeepRevisions int
	// RunTimeout is when a sync run that is not done counts as failed; default 1 h.
	RunTimeout time.Duration
	// RendersAtOnce limits the concurrent renders of all repositories; default 4.
	RendersAtOnce int
	// CheckTimeout limits the check of a source before a deployment is stored; default 5 s.
	CheckTimeout time.Duration
	// RenderLimits default to render.DefaultLimits().
	RenderLimits render.Limits
	// Builder renders Kustomize and Helm; without one they are refused. Equal inputs are built once.
	Builder render.Builder
	// Shared means that other servers may use the same database.
	Shared bool
	// Address is the address of this replica for the others; "" if they cannot reach it.
	Address string
	// BeatEvery is the interval of heartbeats; default 3 s if the database is shared, otherwise 10 s: then it
	// only limits the error of "last seen" after a crash.
	BeatEvery time.Duration
	// BeatTimeout is the assumed heartbeat interval of other servers; default BeatEvery.
	BeatTimeout time.Duration
	// PollLease is how long a polling agent counts as present after its last poll; default 90 s.
	PollLease time.Duration
	// CommitEmail is the author address of commits for callers whose name is not an email address; default
	// kedge@localhost.
	CommitEmail string
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Observe gets the time from a push until its targets are committed; may be nil.
	Observe func(pushToCommitted time.Duration)
}

// Service has the use cases. It is safe for concurrent use.
type Service struct {
	cfg         Config
	store       store.Store
	git         Git
	sources     *reposync.Manager
	images      *imageupdate.Updater
	upgrades    *engineupgrade.Manager
	renders     *fairlimit.Limiter // concurrent renders of all tenants
	member      *membership.Member
	feed        *changefeed.Feed
	polling     *polling.Poller
	connections openConnections
	planner     *rollout.Planner
	placer      *placement.Placer
	checks      *sourceChecks
	// tenantNames caches the names of tenants by id.
	tenantNames sync.Map
}

// New returns a Service; it does no I/O.
func New(cfg Config, st store.Store, git Git) (*Service, error) {
	if len(cfg.Key) < 32 {
		return nil, errors.New("control: the server key is shorter than 32 bytes")
	}
	cfg.PollInterval = cmp.Or(cfg.PollInterval, 30*time.Second)
	cfg.RendersAtOnce = cmp.Or(cfg.RendersAtOnce, 4)
	cfg.CheckTimeout = cmp.Or(cfg.CheckTimeout, 5*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.RenderLimits == (render.Limits{}) {
		cfg.RenderLimits = render.DefaultLimits()
	}
	s := &Service{cfg: cfg, store: st, git: git, feed: changefeed.New(st, cfg.Log)}
	s.member = membership.New(membership.Config{
		Shared: cfg.Shared, Address: cfg.Address, Version: cfg.Version, BeatEvery: cfg.BeatEvery, BeatTimeout: cfg.BeatTimeout,
		Reopen: s.reopenConnections, Now: cfg.Now, Log: cfg.Log,
	}, st)
	s.planner = rollout.New(rollout.Config{KeepRevisions: cfg.KeepRevisions, RunTimeout: cfg.RunTimeout, Now: cfg.Now, Log: cfg.Log}, st)
	s.placer = placement.New(placement.Config{Now: cfg.Now}, s.planner)
	s.polling = polling.New(polling.Config{Lease: cfg.PollLease, Now: cfg.Now, Log: cfg.Log}, polling.Deps{
		Store: st, Feed: s.feed, Planner: s.planner, Control: pollingAgents{s},
	})
	n := cfg.RendersAtOnce
	// The time of a render is limited, so one tenant may use all slots but one.
	s.renders = fairlimit.New(fairlimit.Config{Usual: n, Share: n - 1, Most: n + 1})
	s.images = imageupdate.New(imageupdate.Config{CommitEmail: cfg.CommitEmail, RenderLimits: cfg.RenderLimits}, imageupdate.Deps{
		Store: st, Git: git, Control: imageUseCases{s}, Renders: s.renders,
	})
	s.sources = reposync.New(reposync.Config{
		PollInterval: cfg.PollInterval, RendersAtOnce: cfg.RendersAtOnce, RenderLimits: cfg.RenderLimits, Builder: cfg.Builder,
		Now: cfg.Now, Log: cfg.Log, Observe: cfg.Observe,
	}, reposync.Deps{
		Store: st, Git: git, Feed: s.feed, Leader: s.member, Planner: s.planner, Placer: s.placer, Control: repositories{s}, Renders: s.renders,
	})
	s.upgrades = engineupgrade.New(engineupgrade.Config{Now: cfg.Now, Log: cfg.Log}, engineupgrade.Deps{
		Store: st, Feed: s.feed, Leader: s.member, Planner: s.planner, Control: upgradeRuns{s},
	})
	s.checks = newSourceChecks(git, cfg)
	return s, nil
}

// Work runs the feed, sources, replicas, upgrades, and housekeeping until ctx ends.
func (s *Service) Work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.feed.Run(ctx) })
	g.Go(func() error { return s.reseal(ctx) })
	g.Go(func() error { return s.sources.Run(ctx) })
	g.Go(func() error { return s.member.Run(ctx) })
	g.Go(func() error { return s.runHousekeeping(ctx) })
	g.Go(func() error { return s.polling.Run(ctx) })
	g.Go(func() error { return s.planner.FollowAhead(ctx) })
	g.Go(func() error { return s.upgrades.Run(ctx) })
	return g.Wait()
}

// Ready reports whether the store responds.
func (s *Service) Ready(ctx context.Context) error {
	return s.store.View(ctx, func(tx store.Tx) error {
		_, err := tx.Changes().Last(ctx)
		return err
	})
}

// tell appends an event with the current time.
func (s *Service) tell(ctx context.Context, tx store.Tx, e fleet.Event) error {
	e.At = s.cfg.Now()
	return tx.Events().Append(ctx, e)
}

// webhookSecret is derived, so that it need not be stored and cannot leak from a backup.
func (s *Service) webhookSecret(id fleet.RepositoryID) string {
	mac := hmac.New(sha256.New, s.cfg.Key)
	mac.Write([]byte("kedge webhook\x00" + string(id)))
	return hex.EncodeToString(mac.Sum(nil))
}
