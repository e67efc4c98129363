package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	kubeexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kedge-dev/kedge/internal/plaintext"
)

// ExecOptions describe a command in a container.
type ExecOptions struct {
	Container string
	Command   []string
	In        io.Reader // nil for none
	Out, Err  io.Writer
	// TTY gives the command a terminal. Its errors then come on Out.
	TTY bool
	// Sizes are the sizes of the terminal; nil if they are not known.
	Sizes remotecommand.TerminalSizeQueue
}

// ExitError is the exit code of a command that has run.
type ExitError struct{ Code int }

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("the command ended with exit code %d", e.Code) }

// Exec runs a command in a container of a pod until it ends. It uses WebSocket, and SPDY for API servers that do not know it.
func (c *Cluster) Exec(ctx context.Context, p Pod, o ExecOptions) error {
	query := url.Values{"container": {o.Container}, "command": o.Command, "stdout": {"true"}}
	for name, on := range map[string]bool{"stdin": o.In != nil, "stderr": !o.TTY, "tty": o.TTY} {
		if on {
			query.Set(name, "true")
		}
	}
	target, err := url.Parse(c.client.Server() + c.podPath(p.Metadata.Namespace, p.Metadata.Name, "exec") + "?" + query.Encode())
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	executor, err := c.executor(target)
	if err != nil {
		return fmt.Errorf("preparing a session: %w", err)
	}
	streams := remotecommand.StreamOptions{Stdin: o.In, Stdout: o.Out, Stderr: o.Err, Tty: o.TTY, TerminalSizeQueue: o.Sizes}
	if o.TTY {
		streams.Stderr = nil
	}
	return execError(executor.StreamWithContext(ctx, streams))
}

func (c *Cluster) executor(target *url.URL) (remotecommand.Executor, error) {
	cfg := &rest.Config{
		Host: c.client.Server(), BearerToken: c.client.Token(), UserAgent: c.client.UserAgent(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.client.CA()},
	}
	spdy, err := remotecommand.NewSPDYExecutor(cfg, http.MethodPost, target)
	if err != nil {
		return nil, err
	}
	socket, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, target.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return (httpstream.IsUpgradeFailure(err) && refusal(err) == "") || httpstream.IsHTTPSProxyError(err)
	})
}

// refusal is what a server says that understood the request and refused it, or "".
func refusal(err error) string {
	var upgrade *httpstream.UpgradeFailureError
	var status *apierrors.StatusError
	if errors.As(err, &upgrade) && errors.As(upgrade.Cause, &status) {
		switch status.ErrStatus.Code {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return status.ErrStatus.Message
		}
	}
	return ""
}

func execError(err error) error {
	var exit kubeexec.CodeExitError
	if errors.As(err, &exit) {
		return &ExitError{exit.Code}
	}
	if message := refusal(err); message != "" {
		return errors.New(plaintext.Text(message, 0))
	}
	return err
}
