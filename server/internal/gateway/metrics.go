package gateway

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"
)

// metrics are the metrics of the gateway. No label names an agent or a target, because their number is not
// limited.
type metrics struct {
	connected     prometheus.Gauge
	frames        *prometheus.CounterVec // direction, frame
	bytes         *prometheus.CounterVec // direction
	desired       *prometheus.CounterVec // form
	coalesced     prometheus.Counter
	ended         *prometheus.CounterVec // reason
	reportFailed  prometheus.Counter
	reportBatch   prometheus.Histogram
	changeToSent  prometheus.Histogram
	bundlesLoaded prometheus.Counter
	limited       *prometheus.CounterVec // what
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "kedge", Subsystem: "gateway", Name: name, Help: help}
	}
	m := &metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "kedge", Subsystem: "gateway", Name: "connected_agents", Help: "Agent replicas with an open session.",
		}),
		frames:        prometheus.NewCounterVec(counter("frames_total", "Frames on agent streams."), []string{"direction", "frame"}),
		bytes:         prometheus.NewCounterVec(counter("bytes_total", "Bytes of messages on agent streams, bundles included."), []string{"direction"}),
		desired:       prometheus.NewCounterVec(counter("desired_sent_total", "Desired states sent, by the form of the bundle."), []string{"form"}),
		coalesced:     prometheus.NewCounter(counter("status_coalesced_total", "Statuses that were replaced by a newer one of the same target before they were written.")),
		ended:         prometheus.NewCounterVec(counter("sessions_ended_total", "Sessions that ended, by reason."), []string{"reason"}),
		reportFailed:  prometheus.NewCounter(counter("report_failures_total", "Batches of statuses that failed to be written and were retried.")),
		bundlesLoaded: prometheus.NewCounter(counter("bundles_loaded_total", "Bundles read from the store.")),
		limited:       prometheus.NewCounterVec(counter("limited_total", "Requests of agents beyond their rate limits. Statuses were delayed, other requests were rejected."), []string{"what"}),
		reportBatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "kedge", Subsystem: "gateway", Name: "report_batch_size", Help: "Statuses per write.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 7),
		}),
		changeToSent: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "kedge", Subsystem: "gateway", Name: "change_to_sent_seconds", Help: "Time from the change of a desired state until it was sent.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
		}),
	}
	for _, c := range []prometheus.Collector{
		m.connected, m.frames, m.bytes, m.desired, m.coalesced, m.ended, m.reportFailed, m.bundlesLoaded, m.limited, m.reportBatch, m.changeToSent,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// byteCounter counts the bytes on the wire, which only the transport knows.
type byteCounter struct{ in, out prometheus.Counter }

func (m *metrics) statsHandler() stats.Handler {
	return byteCounter{in: m.bytes.WithLabelValues("in"), out: m.bytes.WithLabelValues("out")}
}

func (b byteCounter) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.InPayload:
		b.in.Add(float64(s.WireLength))
	case *stats.OutPayload:
		b.out.Add(float64(s.WireLength))
	}
}

func (byteCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (byteCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (byteCounter) HandleConn(context.Context, stats.ConnStats)                       {}
