package restapi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a caller was throttled.
const (
	refusedCaller  = "caller"  // too many requests with one token
	refusedAddress = "address" // too many wrong tokens from one address
	refusedStream  = "stream"  // too many open streams of a token, a tenant or all
	refusedPoll    = "poll"    // too many held polls of an agent, a tenant or all
)

// metrics counts requests. Routes are patterns, never paths, which may contain a token.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kedge_rest_requests_total", Help: "Requests by route and status.",
		}, []string{"method", "route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kedge_rest_request_seconds", Help: "How long requests took; streams and long polls as long as they lasted.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"route"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kedge_rest_refused_total", Help: "Throttled requests, by exceeded limit.",
		}, []string{"by"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds, m.refused)
	}
	return m
}

func (m *metrics) observe(method, route string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(knownMethod(method), route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// knownMethod limits the number of series, because callers can send any method.
func knownMethod(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return method
	default:
		return "other"
	}
}
