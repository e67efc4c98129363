package argocd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/rig"
)

// startTimeout limits the start of one part, which takes less than a second on an idle machine.
const startTimeout = time.Minute

const redisLog = "redis.log"

// ports are TCP ports on loopback. They stay the same when a part starts again, because other parts connect to
// them.
type ports struct {
	redis, repoServer, repoServerMetrics, controllerMetrics int
}

func freePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.redis, &p.repoServer, &p.repoServerMetrics, &p.controllerMetrics} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return p, fmt.Errorf("choosing a port: %w", err)
		}
		defer l.Close() // at the end, so that they differ
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// start starts one part and waits until it is ready.
func (i *Instance) start(ctx context.Context, p Part) error {
	var cmd *exec.Cmd
	var ready func(context.Context) error
	switch p {
	case Redis:
		cmd, ready = i.redis(), i.redisReady
	case RepoServer:
		// The full check connects to the gRPC port.
		cmd, ready = i.repoServer(), healthy(loopback(i.ports.repoServerMetrics)+"/healthz?full=true")
	case Controller:
		cmd, ready = i.controller(), healthy(loopback(i.ports.controllerMetrics)+"/healthz")
	}
	process, err := rig.Start(string(p)+" of "+i.cfg.Namespace, cmd, nil)
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w; hack/need.sh installs it", err)
	}
	if err != nil {
		return err
	}
	i.running[p], i.last[p] = process, process
	if err := awaitReady(ctx, process, ready); err != nil {
		return fmt.Errorf("%w; it wrote last:\n%s", err, tail(i.Log(p)))
	}
	return nil
}

// awaitReady calls check until it returns nil. A starting program sends no event to wait for.
func awaitReady(ctx context.Context, p *rig.Process, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return p.Ended()
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// lostPort reports whether another program took a port before a part did. A listener cannot be passed to the
// programs.
func (i *Instance) lostPort() bool {
	return slices.ContainsFunc(parts, func(p Part) bool {
		return strings.Contains(strings.ToLower(i.Log(p)), "address already in use")
	})
}

func (i *Instance) redis() *exec.Cmd {
	cmd := exec.Command("redis-server",
		"--bind", "127.0.0.1", "--port", strconv.Itoa(i.ports.redis),
		"--save", "", "--appendonly", "no", "--dir", i.dir,
		"--logfile", i.path(redisLog)) // by default, its log is its standard output
	cmd.Dir = i.dir
	return cmd
}

func (i *Instance) redisReady(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", loopback(i.ports.redis))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "+PONG\r\n" {
		err = fmt.Errorf("redis answered %q", answer)
	}
	return err
}

func (i *Instance) repoServer() *exec.Cmd {
	return i.program(RepoServer, []string{
		"--address=127.0.0.1", "--port=" + strconv.Itoa(i.ports.repoServer),
		"--metrics-address=127.0.0.1", "--metrics-port=" + strconv.Itoa(i.ports.repoServerMetrics),
		"--redis=" + loopback(i.ports.redis), "--logformat=text",
	},
		"ARGOCD_ASK_PASS_SOCK="+i.path("askpass"),
		"ARGOCD_PLUGINSOCKFILEPATH="+i.path("plugins"),
		// By default, the third failed render of a revision blocks further attempts for an hour.
		"ARGOCD_PAUSE_GEN_AFTER_FAILED_ATTEMPTS=0",
	)
}

func (i *Instance) controller() *exec.Cmd {
	args := []string{
		"--namespace=" + i.cfg.Namespace,
		"--repo-server=" + loopback(i.ports.repoServer), "--redis=" + loopback(i.ports.redis),
		"--metrics-port=" + strconv.Itoa(i.ports.controllerMetrics), "--logformat=text",
		// No periodic comparison: a test that waits for it would pass without the event that it tests.
		"--app-resync=0", "--app-resync-jitter=0",
		"--self-heal-timeout-seconds=0", "--self-heal-backoff-timeout-seconds=0",
		// Without a request for a refresh, errors of the repo server are ignored for this time.
		"--repo-error-grace-period-seconds=0",
	}
	return i.program(Controller, append(args, i.cfg.ControllerArgs...),
		"KUBECONFIG="+i.path(kubeconfigFile),
		// The destination InCluster uses KUBECONFIG.
		"ARGOCD_FAKE_IN_CLUSTER=true",
		"ARGOCD_SYNC_WAVE_DELAY=0",
		"ARGOCD_CLUSTER_CACHE_EVENTS_PROCESSING_INTERVAL=10ms",
		"ARGOCD_CLUSTER_SYNC_RETRY_TIMEOUT_DURATION=1s",
		"ARGOCD_K8S_CLIENT_QPS=1000", "ARGOCD_K8S_CLIENT_BURST=2000",
	)
}

// program returns a program of Argo CD. It does not get the environment of this process: a proxy, a KUBECONFIG,
// or an ARGOCD_… variable would change its behavior.
func (i *Instance) program(p Part, args []string, env ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(i.cfg.BinDir, string(p)), args...)
	cmd.Dir = i.dir
	cmd.Env = append(env,
		// The repo server runs git-verify-wrapper.sh, and git runs argocd for passwords.
		"PATH="+i.tools+":"+i.cfg.BinDir+":"+os.Getenv("PATH"),
		"ARGOCD_GPG_ENABLED=false", "ARGOCD_GNUPGHOME="+i.path("gnupg"),
		"HOME="+i.dir, "TMPDIR="+i.path("tmp"),
		"ARGOCD_TLS_DATA_PATH="+i.path("tls"), "ARGOCD_SSH_DATA_PATH="+i.path("ssh"),
	)
	return cmd
}

// healthy returns a check that a health endpoint answers 200.
func healthy(address string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", address, res.Status)
		}
		return nil
	}
}
