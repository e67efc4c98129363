package builtin

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of the engines of a process, of which one runs at a time. A nil Metrics counts nothing.
type Metrics struct{ refusedTransitions prometheus.Counter }

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{refusedTransitions: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "kedge", Subsystem: "agent", Name: "refused_transitions_total",
		Help: "Phase transitions of objects that the engine refused. Each is a bug of the agent.",
	})}
	if err := reg.Register(m.refusedTransitions); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Metrics) countRefusedTransition() {
	if m != nil {
		m.refusedTransitions.Inc()
	}
}
