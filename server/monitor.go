package server

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/obs"
)

// monitor serves metrics and detailed health on a listener of its own: they name tenants' load and what is
// wrong with the server, which is nobody's business on the public port.
type monitor struct {
	listener net.Listener // nil when there is none
	handler  http.Handler
}

// noListener is what --metrics-listen is set to for no such listener.
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

// close frees the address; run has done so by itself.
func (m *monitor) close() {
	if m.listener != nil {
		_ = m.listener.Close()
	}
}

// url is where metrics are; "" when they are nowhere.
func (m *monitor) url() string {
	if m.listener == nil {
		return ""
	}
	return "http://" + m.listener.Addr().String()
}
