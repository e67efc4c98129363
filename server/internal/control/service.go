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
	"github.com/kedge-dev/kedge/server/internal/fairlimit"
	"github.com/kedge-dev/kedge/server/internal/imageupdate"
	"github.com/kedge-dev/kedge/server/internal/membership"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/polling"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config is what a Service may be told. Zero fields take their defaults.
type Config struct {
	// Key is the server's own secret, at least 32 bytes: webhook secrets are derived from it. All
	// replicas have the same.
	Key []byte
	// Sealer keeps the secrets of credentials; without one they are refused.
	Sealer Sealer
	// Version of the server, to warn of agents that run another one.
	Version string
	// PollInterval is the backstop for lost webhooks; default 30 s.
	PollInterval time.Duration
	// KeepRevisions is how many rendered revisions of a deployment a rollback can go back to; default 10.
	KeepRevisions int
	// RunTimeout is when a sync run that has not come to an end has failed; default 1 h.
	RunTimeout time.Duration
	// RendersAtOnce bounds what the sources cost, over all repositories; default 4.
	RendersAtOnce int
	// CheckTimeout is how long a source is looked at before a deployment is stored; default 5 s.
	CheckTimeout time.Duration
	// RenderLimits default to render.DefaultLimits().
	RenderLimits render.Limits
	// Builder renders Kustomize and Helm; without one they are refused. Equal inputs are built once.
	Builder render.Builder
	// Shared says that other servers may use the same database.
	Shared bool
	// Address is how other replicas reach this one; "" when they cannot.
	Address string
	// BeatEvery is how often the server says that it is alive; default 3 s when the database is
	// shared, else 10 s: then it only bounds how far "last seen" may be off after a crash.
	BeatEvery time.Duration
	// BeatLapse is what counts as one beat when the silence of other servers is judged; default BeatEvery.
	BeatLapse time.Duration
	// PollLease is for how long an agent that polls counts as present after its last poll; default 90 s.
	PollLease time.Duration
	// CommitEmail is the address of the author of commits that are made for somebody who is not named by
	// one; default kedge@localhost.
	CommitEmail string
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Observe is told how long a push took until its targets were committed; may be nil.
	Observe func(pushToCommitted time.Duration)
}

// Service holds the use-cases. It is safe for concurrent use.
type Service struct {
	cfg     Config
	store   store.Store
	git     Git
	sources *reposync.Manager
	images  *imageupdate.Updater
	renders *fairlimit.Limiter // what runs at once, over all tenants
	member  *membership.Member
	feed    *changefeed.Feed
	polling *polling.Poller
	present present
	planner *rollout.Planner
	placer  *placement.Placer
	checks  *sourceChecks
	// tenantNames are names by id, of every tenant that was looked up.
	tenantNames sync.Map
}

// New makes a Service; it does no I/O.
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
		Shared: cfg.Shared, Address: cfg.Address, Version: cfg.Version, BeatEvery: cfg.BeatEvery, BeatLapse: cfg.BeatLapse,
		Reopen: s.reappear, Now: cfg.Now, Log: cfg.Log,
	}, st)
	s.planner = rollout.New(rollout.Config{KeepRevisions: cfg.KeepRevisions, RunTimeout: cfg.RunTimeout, Now: cfg.Now, Log: cfg.Log}, st)
	s.placer = placement.New(placement.Config{Now: cfg.Now}, s.planner)
	s.polling = polling.New(polling.Config{Lease: cfg.PollLease, Now: cfg.Now, Log: cfg.Log}, polling.Deps{
		Store: st, Feed: s.feed, Planner: s.planner, Control: pollingAgents{s},
	})
	n := cfg.RendersAtOnce
	// A render is bounded in time, so that one tenant may have all but one place.
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
	s.checks = newSourceChecks(git, cfg)
	return s, nil
}

// Work drives the feed, sources, replicas and housekeeping until ctx ends.
func (s *Service) Work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.feed.Run(ctx) })
	g.Go(func() error { return s.reseal(ctx) })
	g.Go(func() error { return s.sources.Run(ctx) })
	g.Go(func() error { return s.member.Run(ctx) })
	g.Go(func() error { return s.keepHouse(ctx) })
	g.Go(func() error { return s.polling.Run(ctx) })
	g.Go(func() error { return s.planner.FollowAhead(ctx) })
	return g.Wait()
}

// Ready reports whether the store answers.
func (s *Service) Ready(ctx context.Context) error {
	return s.store.View(ctx, func(tx store.Tx) error {
		_, err := tx.Changes().Last(ctx)
		return err
	})
}

// tell appends an event, now.
func (s *Service) tell(ctx context.Context, tx store.Tx, e fleet.Event) error {
	e.At = s.cfg.Now()
	return tx.Events().Append(ctx, e)
}

// webhookSecret is derived, so that nothing has to be stored and none can leak from a backup.
func (s *Service) webhookSecret(id fleet.RepositoryID) string {
	mac := hmac.New(sha256.New, s.cfg.Key)
	mac.Write([]byte("kedge webhook\x00" + string(id)))
	return hex.EncodeToString(mac.Sum(nil))
}
