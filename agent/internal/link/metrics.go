package link

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of one or several clients of a process.
type Metrics struct {
	connected     prometheus.Gauge
	connects      prometheus.Counter
	problems      *prometheus.CounterVec // kind
	frames        *prometheus.CounterVec // direction, frame
	eventsDropped prometheus.Counter
	bundleBytes   prometheus.Counter
	bundleRetries prometheus.Counter
	waited        prometheus.Counter
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "kedge", Subsystem: "agent", Name: name, Help: help}
	}
	m := &Metrics{
		connected:     prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "kedge", Subsystem: "agent", Name: "connected", Help: "1 while this agent is connected and accepted by the server."}),
		connects:      prometheus.NewCounter(opts("connects_total", "Connections that the server accepted.")),
		problems:      prometheus.NewCounterVec(opts("connection_problems_total", "Failed attempts to connect and lost connections, by kind."), []string{"kind"}),
		frames:        prometheus.NewCounterVec(opts("frames_total", "Frames on the stream to the server."), []string{"direction", "frame"}),
		eventsDropped: prometheus.NewCounter(opts("events_dropped_total", "Events that were dropped because too many were queued.")),
		bundleBytes:   prometheus.NewCounter(opts("bundle_bytes_total", "Compressed bytes of fetched bundles.")),
		bundleRetries: prometheus.NewCounter(opts("bundle_retries_total", "Failed fetches of bundles, which were retried.")),
		waited:        prometheus.NewCounter(opts("reconnect_wait_seconds_total", "Delays before the agent reconnected.")),
	}
	for _, c := range []prometheus.Collector{m.connected, m.connects, m.problems, m.frames, m.eventsDropped, m.bundleBytes, m.bundleRetries, m.waited} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
