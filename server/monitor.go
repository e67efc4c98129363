package server

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/obs"
)

// monitor serves metrics and detailed health on a separate listener: they contain the load of tenants and
// problems of the server, which must not be public.
type monitor struct {
	listener net.Listener // nil when there is none
	handler  http.Handler
}

// noListener is the value of --metrics-listen that disables the listener.
const noListener = "none"

// openMonitor binds the address.
func openMonitor(cfg Config, r components, metrics *prometheus.Registry) (*monitor, error) {
	if cfg.MetricsListen == "" || cfg.MetricsListen == noListener {
		return &monitor{}, nil
	}
	l, err := net.Listen("tcp", cfg.MetricsListen)
	if err != nil {
		return nil, fmt.Errorf("listening for metrics: %w: choose another address with --metrics-listen, or %q for none", err, noListener)
	}
	return &monitor{listener: l, handler: obs.Handler(metrics, r.control.Ready, r.renders.note)}, nil
}

// run serves until ctx ends.
func (m *monitor) run(ctx context.Context) error {
	if m.listener == nil {
		<-ctx.Done()
		return nil
	}
	return obs.Serve(ctx, m.listener, m.handler)
}

// close frees the address; run does so by itself.
func (m *monitor) close() {
	if m.listener != nil {
		_ = m.listener.Close()
	}
}

// url returns the URL of the metrics, or "".
func (m *monitor) url() string {
	if m.listener == nil {
		return ""
	}
	return "http://" + m.listener.Addr().String()
}
