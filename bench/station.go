package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// The kinds of databases.
const (
	sqlite   = "sqlite"
	postgres = "postgres"
)

// callers is the number of tokens of a station in addition to the first: a server limits the requests of each.
const callers = 12

// tooManyPause is the pause of a throttled caller.
const tooManyPause = 50 * time.Millisecond

// station is a kedge-server with its own database, over TLS. It can be killed, and restarted at the same
// address.
type station struct {
	*rig.Server
	kind  string
	cfg   rig.ServerConfig
	extra []string  // more tokens of the fleet's admin
	pg    *pgServer // nil with SQLite
}

// station starts one with a fresh database.
func (r *rigging) station(ctx context.Context, kind string, args ...string) (*station, error) {
	dir, err := r.subdir("server-")
	if err != nil {
		return nil, err
	}
	log, err := r.logFile(filepath.Base(dir) + ".log")
	if err != nil {
		return nil, err
	}
	common, err := r.commonArgs(ctx)
	if err != nil {
		return nil, err
	}
	// Webhooks announce every change, so that no figure depends on a poll.
	args = append(append(args, "--git-poll-interval=10m", "--tls-host=localhost"), common...)
	s := &station{kind: kind, cfg: rig.ServerConfig{
		Binary: r.program("kedge-server"), Listen: "127.0.0.1:0", DataDir: dir, Log: log,
	}}
	if kind == postgres {
		user, err := r.newDatabase(ctx)
		if err != nil {
			return nil, err
		}
		s.pg, args = r.pg, append(args, "--database="+user)
	}
	s.cfg.Args = args
	if s.Server, err = rig.StartServer(ctx, s.cfg); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { return s.Stop() }) // of the newest start
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	s.cfg.Listen = u.Host
	return s, s.hire(ctx)
}

// newDatabase creates a database in PostgreSQL, which the first one starts.
func (r *rigging) newDatabase(ctx context.Context) (user string, err error) {
	if r.pg == nil {
		if r.pg, err = startPostgres(); err != nil {
			return "", err
		}
		r.closers = append(r.closers, r.pg.stop)
	}
	owner, user, err := r.pg.create(ctx)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, r.program("kedge-server"), "migrate", "--database="+owner, "--data-dir="+r.dir).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("migrating: %w: %s", err, out)
	}
	return user, nil
}

// commonArgs are the keys and the CA that servers with PostgreSQL need. A server that is started only for this
// creates them.
func (r *rigging) commonArgs(ctx context.Context) ([]string, error) {
	dir := filepath.Join(r.dir, "common")
	if r.common == nil {
		maker, err := rig.StartServer(ctx, rig.ServerConfig{
			Binary: r.program("kedge-server"), Listen: "127.0.0.1:0", DataDir: dir, Args: []string{"--tls-host=localhost"},
		})
		if err != nil {
			return nil, fmt.Errorf("making keys: %w", err)
		}
		if err := maker.Stop(); err != nil {
			return nil, err
		}
		r.common = []string{
			"--key-file=" + filepath.Join(dir, "keys"),
			"--tls-ca-cert-file=" + filepath.Join(dir, "ca.pem"), "--tls-ca-key-file=" + filepath.Join(dir, "ca.key"),
		}
	}
	return r.common, nil
}

// restart restarts the server at the same address, after it has ended.
func (s *station) restart(ctx context.Context) error {
	started, err := rig.StartServer(ctx, s.cfg)
	if err != nil {
		return err
	}
	started.Token = s.Token
	s.Server = started
	return nil
}

// agentAddress returns the address for agents.
func (s *station) agentAddress() string { return strings.Replace(s.URL, "https://", "grpcs://", 1) }

// memory returns the PSS of the server, and of its database if that is a separate process, in KiB.
func (s *station) memory() (server, database float64, err error) {
	if server, err = pss(s.PID()); err != nil || s.pg == nil {
		return server, 0, err
	}
	database, err = s.pg.memory()
	return server, database, err
}

// hire creates more tokens.
func (s *station) hire(ctx context.Context) error {
	for i := range callers {
		var t apiv1.NewAPIToken
		req := apiv1.CreateAPIToken{Name: fmt.Sprintf("caller-%d", i), Role: "fleet-admin"}
		if err := s.Call(ctx, http.MethodPost, "/tokens", req, &t); err != nil {
			return err
		}
		s.extra = append(s.extra, t.Token)
	}
	return nil
}

// caller returns the server for the i-th caller.
func (s *station) caller(i int) *rig.Server {
	c := *s.Server
	c.Token = s.extra[i%len(s.extra)]
	return &c
}

// each calls fn for 0 … n−1, concurrently, each time with one of the callers. Throttled callers slow down.
func (s *station) each(ctx context.Context, n int, fn func(ctx context.Context, c *rig.Server, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for w := range callers {
		g.Go(func() error {
			c := s.caller(w)
			for i := w; i < n; i += callers {
				if err := patiently(ctx, func() error { return fn(ctx, c, i) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// patiently retries throttled requests.
func patiently(ctx context.Context, do func() error) error {
	for {
		err := do()
		var status *rig.StatusError
		if !errors.As(err, &status) || status.Code != http.StatusTooManyRequests {
			return err
		}
		if !pause(ctx, tooManyPause) {
			return ctx.Err()
		}
	}
}

// addRepository creates a repository before concurrent deployments from it.
func (s *station) addRepository(ctx context.Context, url string) error {
	return s.Call(ctx, http.MethodPost, rig.TenantPath+"/repositories", apiv1.CreateRepository{URL: url}, nil)
}
