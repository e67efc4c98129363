package control

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Git is what control needs from a source of commits.
type Git interface {
	// CheckURL returns the form of url that is stored, or why it is refused.
	CheckURL(url string) (string, error)
	Fetch(ctx context.Context, url string, revisions []string) (map[string]gitsource.Ref, error)
	Tree(ctx context.Context, url, commit string) (filetree.Tree, error)
}

// Config is what a Service may be told. Zero fields take their defaults.
type Config struct {
	// Key is the server's own secret, at least 32 bytes: webhook secrets are derived from it.
	Key []byte
	// Version of the server, to warn of agents that run another one.
	Version string
	// PollInterval is the backstop for lost webhooks; default 30 s.
	PollInterval time.Duration
	// RenderLimits default to render.DefaultLimits().
	RenderLimits render.Limits
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
	sources *sources
	from    int64 // where FollowChanges starts: pinned by Bootstrap, before any door is open
}

// New makes a Service; it does no I/O.
func New(cfg Config, st store.Store, git Git) (*Service, error) {
	if len(cfg.Key) < 32 {
		return nil, errors.New("control: the server key is shorter than 32 bytes")
	}
	cfg.PollInterval = cmp.Or(cfg.PollInterval, 30*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.RenderLimits == (render.Limits{}) {
		cfg.RenderLimits = render.DefaultLimits()
	}
	s := &Service{cfg: cfg, store: st, git: git}
	s.sources = newSources(s)
	return s, nil
}

// epoch of this database. Restoring a backup will raise it.
const epoch = 1

// Bootstrap prepares a database for serving: the default tenant and environment, and, on the first
// start or when another one is asked for, an admin token, which is returned this once. Connections that a server before this one
// left open are closed.
func (s *Service) Bootstrap(ctx context.Context, newToken bool) (adminToken string, err error) {
	err = s.store.Update(ctx, func(tx store.Tx) error {
		beat, err := tx.Connections().LastBeat(ctx)
		if err != nil {
			return err
		}
		if err := tx.Connections().CloseAllTenants(ctx, beat); err != nil {
			return err
		}
		if s.from, err = tx.Changes().Last(ctx); err != nil {
			return err
		}
		n, err := tx.Tokens().CountAPITokens(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			if err := s.firstStart(ctx, tx); err != nil {
				return err
			}
		}
		if n > 0 && !newToken {
			return nil
		}
		adminToken = auth.NewToken(auth.APITokenPrefix)
		return tx.Tokens().CreateAPIToken(ctx, fleet.APIToken{
			ID: fleet.NewTokenID(), Name: "admin", Role: fleet.RoleFleetAdmin, Hash: auth.Hash(adminToken), CreatedAt: s.cfg.Now(),
		})
	})
	if err != nil {
		return "", fmt.Errorf("preparing the database: %w", err)
	}
	return adminToken, nil
}

func (s *Service) firstStart(ctx context.Context, tx store.Tx) error {
	now := s.cfg.Now()
	tenant := fleet.Tenant{ID: fleet.NewTenantID(), Name: fleet.DefaultTenant, CreatedAt: now}
	if err := tx.Tenants().Create(ctx, tenant); err != nil {
		return err
	}
	everywhere := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: tenant.ID, Name: fleet.DefaultEnvironment, CreatedAt: now}
	return tx.Environments().Create(ctx, everywhere)
}

// Run drives sources and housekeeping until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.sources.run(ctx) })
	g.Go(func() error { return s.keepHouse(ctx) })
	return g.Wait()
}

// Ready reports whether the store answers.
func (s *Service) Ready(ctx context.Context) error {
	return s.store.View(ctx, func(tx store.Tx) error {
		_, err := tx.Changes().Last(ctx)
		return err
	})
}

// webhookSecret is derived, so that nothing has to be stored and none can leak from a backup.
func (s *Service) webhookSecret(id fleet.RepositoryID) string {
	mac := hmac.New(sha256.New, s.cfg.Key)
	mac.Write([]byte("kedge webhook\x00" + string(id)))
	return hex.EncodeToString(mac.Sum(nil))
}
