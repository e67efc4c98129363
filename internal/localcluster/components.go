package localcluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

const (
	auditPolicyFile = "audit.yaml"
	stagesFile      = "stages.yaml"
)

//go:embed audit.yaml
var auditPolicy []byte

// stages says how simulated nodes and pods behave.
//
//go:embed stages.yaml
var stages []byte

var errPortTaken = errors.New("the port was taken by another program")

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("choosing a port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	etcd := []string{
		"--data-dir=etcd", "--log-level=warn",
		// Relative sockets: the path of an absolute one may be too long for the kernel.
		"--listen-client-urls=unix://client", "--advertise-client-urls=unix://client",
		"--listen-peer-urls=unix://peer", "--initial-advertise-peer-urls=unix://peer",
		"--initial-cluster=default=unix://peer",
		// The data is deleted with the processes, so syncing it to disk is useless.
		"--unsafe-no-fsync",
	}
	apiserver := []string{
		"--etcd-servers=unix://client",
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.port),
		// Without a reconciler, this address is not published. Setting one avoids the search for a network
		// interface, which fails on a machine without one.
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + servingCertFile, "--tls-private-key-file=" + servingKeyFile,
		"--client-ca-file=" + caFile,
		"--authorization-mode=Node,RBAC", "--allow-privileged",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + accountKeyFile,
		"--service-account-signing-key-file=" + accountKeyFile,
		// Limits would measure other load on this machine rather than the product.
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=0", "--max-mutating-requests-inflight=0",
		"--audit-policy-file=" + auditPolicyFile, "--audit-log-path=audit.log",
		"--profiling=false",
	}
	var err error
	if c.api, err = newAPIClient(c); err != nil {
		return err
	}
	return c.startAndWait(ctx, c.api.ready, program{"etcd", etcd}, program{"kube-apiserver", apiserver})
}

func (c *Cluster) startControllers(ctx context.Context) error {
	manager := []string{
		"--kubeconfig=" + controllerUser.file,
		"--service-account-private-key-file=" + accountKeyFile, "--root-ca-file=" + caFile,
		"--use-service-account-credentials", "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--profiling=false",
	}
	scheduler := []string{
		"--kubeconfig=" + schedulerUser.file, "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--profiling=false",
	}
	kwok := []string{
		"--kubeconfig=" + kwokUser.file, "--config=" + stagesFile, "--manage-all-nodes",
		"--node-lease-duration-seconds=40",
	}
	return c.startAndWait(ctx, c.api.accountsServed,
		program{"kube-controller-manager", manager},
		program{"kube-scheduler", scheduler},
		program{"kwok", kwok})
}

// program is one program of the control plane with its arguments.
type program struct {
	name string
	args []string
}

// startAndWait starts programs and waits until ready returns, or until a program ends.
func (c *Cluster) startAndWait(ctx context.Context, ready func(context.Context) error, programs ...program) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, p := range programs {
		if err := c.run(p, cancel); err != nil {
			return err
		}
	}
	err := ready(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// run starts a program and calls failed if it ends by itself, then or later.
func (c *Cluster) run(p program, failed context.CancelCauseFunc) error {
	log, err := os.Create(c.logFile(p.name))
	if err != nil {
		return fmt.Errorf("making the log of %s: %w", p.name, err)
	}
	defer log.Close()                                                   // the program has its own handle
	cmd := exec.Command(filepath.Join(c.cfg.BinDir, p.name), p.args...) //nolint:noctx // it outlives the start; the group ends it
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = log, log
	// The programs do not get the environment of this process: a proxy, a KUBECONFIG, or an ETCD_… variable
	// would change their behavior.
	cmd.Env = []string{"HOME=" + c.dir, "TMPDIR=" + c.dir, "PATH=" + os.Getenv("PATH")}
	return c.group.start(cmd, func(err error) {
		err = c.exitError(p.name, err)
		failed(err)
		c.cfg.Log.Error("a program of a local cluster ended", slog.String("cluster", c.cfg.Name), slog.Any("error", err))
	})
}

func (c *Cluster) logFile(program string) string { return filepath.Join(c.dir, program+".log") }

// exitError returns an error with the cause and the end of the output.
func (c *Cluster) exitError(program string, cause error) error {
	log, err := os.ReadFile(c.logFile(program))
	if err != nil {
		return errors.Join(cause, err)
	}
	if bytes.Contains(log, []byte("address already in use")) {
		return errPortTaken
	}
	const keep = 2000
	log = log[max(0, len(log)-keep):]
	return fmt.Errorf("%s ended (%w); it wrote last:\n%s", program, cause, log)
}
