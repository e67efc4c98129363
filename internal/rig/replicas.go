package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
)

// ReplicasConfig configures several servers that share a database.
type ReplicasConfig struct {
	Binary   string
	Database string // postgres:// URL of a migrated database, without a password
	KeyFile  string // shared by all; see NewKeyFile
	DataDirs []string
	Args     []string
}

// Replicas are servers on one database with a load balancer. Its methods are not safe for concurrent use.
type Replicas struct {
	*Balancer
	Servers []*Server // each with its own address as URL; the balancer has the shared one
	Token   string    // token of the fleet admin
	cfg     ReplicasConfig
}

// StartReplicas starts one server for each data directory, concurrently, and returns when all are ready. Users
// and agents use the address of the balancer. The caller stops it.
func StartReplicas(ctx context.Context, cfg ReplicasConfig) (*Replicas, error) {
	balancer, err := StartBalancer()
	if err != nil {
		return nil, err
	}
	r := &Replicas{Balancer: balancer, Servers: make([]*Server, len(cfg.DataDirs)), cfg: cfg}
	errs := make([]error, len(cfg.DataDirs))
	var starting sync.WaitGroup
	for i := range cfg.DataDirs {
		starting.Go(func() {
			var port string
			if port, errs[i] = freePort(); errs[i] == nil {
				r.Servers[i], errs[i] = r.start(ctx, i, port)
			}
		})
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	var addresses []string
	for _, s := range r.Servers {
		addresses = append(addresses, hostPort(s))
		if s.Token != "" {
			r.Token = s.Token // only one of them created the first token
		}
	}
	for _, s := range r.Servers {
		s.Token = r.Token
	}
	r.SetBackends(addresses...)
	return r, nil
}

// start returns a server with its own address, not the external URL.
func (r *Replicas) start(ctx context.Context, i int, listen string) (*Server, error) {
	s, err := StartServer(ctx, ServerConfig{
		Binary: r.cfg.Binary, Listen: listen, DataDir: r.cfg.DataDirs[i],
		Args: append([]string{
			"--database", r.cfg.Database, "--key-file", r.cfg.KeyFile, "--external-url", "http://" + r.Address(),
		}, r.cfg.Args...),
	})
	if err != nil {
		return nil, err
	}
	s.URL = "http://" + listen
	return s, nil
}

// freePort returns an unused address. A server with an external URL prints that and not its port, so it cannot
// choose a port itself.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

func hostPort(s *Server) string { return strings.TrimPrefix(s.URL, "http://") }

// Restart starts a replica that has ended, at the same address.
func (r *Replicas) Restart(ctx context.Context, i int) error {
	s, err := r.start(ctx, i, hostPort(r.Servers[i]))
	if err != nil {
		return err
	}
	s.Token = r.Token
	r.Servers[i] = s
	return nil
}

// Stop stops all servers and the balancer.
func (r *Replicas) Stop() error {
	errs := []error{r.Close()}
	for _, s := range r.Servers {
		if s != nil {
			errs = append(errs, s.Stop())
		}
	}
	return errors.Join(errs...)
}

// NewKeyFile creates the keys of servers that share a database.
func NewKeyFile(ctx context.Context, binary, path string) error {
	return Admin(ctx, binary, "new-key", "--key-file", path)
}

// Admin runs an administrative command of kedge-server.
func Admin(ctx context.Context, binary string, args ...string) error {
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running kedge-server %s: %w\n%s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
