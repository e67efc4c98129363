package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// newPushHistogram returns the function that control calls with the time from a push until its targets are
// committed.
func newPushHistogram(metrics prometheus.Registerer) func(time.Duration) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kedge_push_to_committed_seconds",
		Help:    "Time from a webhook until the new desired state of its targets was committed.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
	})
	metrics.MustRegister(h)
	return func(d time.Duration) { h.Observe(d.Seconds()) }
}
