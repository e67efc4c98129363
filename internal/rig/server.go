package rig

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// ServerConfig configures kedge-server.
type ServerConfig struct {
	Binary  string
	Listen  string // such as 127.0.0.1:0
	DataDir string
	Args    []string
	Log     io.Writer // gets a copy of its log; may be nil
	// Wrap changes the command before it starts, for example to run it in a network namespace.
	Wrap func(*exec.Cmd) *exec.Cmd
}

// Server is a running kedge-server.
type Server struct {
	*Process
	URL    string
	Health string       // address of /metrics and the detailed /readyz
	Token  string       // "" unless this was the first start with its data
	CAFile string       // certificate of its own CA; "" without TLS
	HTTP   *http.Client // trusts that CA
}

// AgentImage is the image in the manifests of servers. It cannot be published and is never pulled: a local
// process replaces the pod.
const AgentImage = "localhost/kedge-agent:local"

// StartServer starts kedge-server and returns when it is ready.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	// Git servers of tests and the demo are on this machine, with any number of tenants.
	args := append([]string{"--git-allow-private", "--git-allow-cidr", "127.0.0.0/8", "--listen", cfg.Listen, "--metrics-listen", "127.0.0.1:0", "--data-dir", cfg.DataDir, "--agent-image", AgentImage}, cfg.Args...)
	// ctx limits only the start.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), cfg.Binary, args...)
	if cfg.Wrap != nil {
		cmd = cfg.Wrap(cmd)
	}
	out, in := io.Pipe()
	cmd.Stdout = in
	p, err := Start("kedge-server", cmd, cfg.Log)
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.Done()
		_ = in.Close()
	}()
	s := &Server{Process: p}
	err = s.awaitReady(ctx, out)
	if err == nil {
		s.HTTP, err = trusting(s.CAFile)
	}
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("%w\n%s", err, p.Log())
	}
	return s, nil
}

// trusting returns a client that also trusts a private CA.
func trusting(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("reading the server's CA: %w", err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport}, nil
}

// awaitReady reads the output of the start.
func (s *Server) awaitReady(ctx context.Context, out io.Reader) error {
	ready := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if s.heard(lines.Text()) {
				ready <- nil
			}
		}
		ready <- errors.New("kedge-server ended before it was ready")
	}()
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for kedge-server: %w", ctx.Err())
	}
}

// heard parses one line and reports whether it was the last one of a start.
func (s *Server) heard(line string) bool {
	if strings.Contains(line, "kedge-server is ready") {
		return true
	}
	switch fields := strings.Fields(line); {
	case len(fields) < 2:
	case fields[0] == "address":
		s.URL = fields[1]
	case fields[0] == "token":
		s.Token = fields[1]
	case fields[0] == "metrics":
		s.Health = strings.TrimSuffix(fields[1], "/metrics")
	case fields[0] == "ca":
		s.CAFile = fields[1]
	}
	return false
}
