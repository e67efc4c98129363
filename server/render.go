package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// RenderConfig configures the renders of Kustomize and Helm, which run in confined child processes. Zero fields
// have defaults.
type RenderConfig struct {
	// Program is the program of children: this program, whose main becomes a child on request, see child.Self.
	// Without it, Kustomize and Helm are refused.
	Program string
	// Timeout, Memory, and Output limit one render; default 30 s, 1 GiB (less if there is less memory), and 64
	// MiB. Timeout applies to plain manifests too.
	Timeout        time.Duration
	Memory, Output int64
	// Processes is the number of concurrent renders; default four per processor, or as many as the memory
	// allows. One tenant gets a quarter.
	Processes int
	// RequireSandbox lists mechanisms of package sandbox, or "all": the server does not start without them.
	RequireSandbox []string
	// AllowWeakSandbox allows renders for several tenants in an incomplete sandbox. Otherwise only those of the
	// default tenant are rendered then.
	AllowWeakSandbox bool

	idle int                 // idle render processes; 0 for the default of the pool
	off  []sandbox.Mechanism // disabled, for tests
}

// mechanisms returns the required mechanisms.
func (c RenderConfig) mechanisms() ([]sandbox.Mechanism, error) {
	var out []sandbox.Mechanism
	for _, name := range c.RequireSandbox {
		switch m := sandbox.Mechanism(name); {
		case name == "all":
			return sandbox.All(), nil
		case !slices.Contains(sandbox.All(), m):
			return nil, fmt.Errorf("--require-sandbox: %q is not one of %v or all", name, sandbox.All())
		default:
			out = append(out, m)
		}
	}
	return out, nil
}

// limits returns the limits of renders without a child.
func (c RenderConfig) limits() render.Limits { return render.Limits{Time: c.Timeout} }

// renderer is the pool with its status.
type renderer struct {
	*child.Pool      // nil when there is none
	allowWeak   bool // several tenants may render in an incomplete sandbox
}

// note returns the current problem with renders, or "".
func (r *renderer) note() string {
	if r.Pool == nil {
		return ""
	}
	if err := r.Failure(); err != nil {
		return "Kustomize and Helm cannot be rendered: " + err.Error()
	}
	if status, _ := r.Status(); status.Problem() != "" {
		note := "the sandbox of renders is incomplete: " + status.Problem()
		if !r.allowWeak {
			note += "; with several tenants, Kustomize and Helm are rendered only for the tenant " + fleet.DefaultTenant + " alone: " + weakSandboxAdvice
		}
		return note
	}
	return ""
}

// openRenderer starts the first child, to check that it works and how it is confined. It fails only if a
// required mechanism is missing: plain manifests need no child.
func openRenderer(ctx context.Context, cfg Config, metrics prometheus.Registerer) (*renderer, error) {
	required, err := cfg.Render.mechanisms()
	if err != nil {
		return nil, err
	}
	if cfg.Render.Program == "" {
		return &renderer{}, nil
	}
	pool, err := child.NewPool(child.Config{
		Program:   cfg.Render.Program,
		Limits:    child.Limits{Time: cfg.Render.Timeout, Memory: cfg.Render.Memory, Output: cfg.Render.Output},
		Processes: cfg.Render.Processes, Idle: cfg.Render.idle, Require: required, Off: cfg.Render.off, Observe: newRenderHistogram(metrics), Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	status, err := pool.Probe(ctx)
	if err != nil && len(required) > 0 {
		pool.Close()
		return nil, err
	}
	switch problem := status.Problem(); {
	case err != nil:
		cfg.Log.Error("no renderer can be started: Kustomize and Helm cannot be rendered", obs.Err(err))
	case problem != "":
		cfg.Log.Warn("the sandbox of renders is incomplete", obs.KeyReason, problem, slog.Any("active", status.Active))
	default:
		cfg.Log.Info("renders are confined", slog.Any("active", status.Active))
	}
	return &renderer{Pool: pool, allowWeak: cfg.Render.AllowWeakSandbox}, nil
}

// builder returns the builder for control, or nil.
func (r *renderer) builder(st store.Store) render.Builder {
	switch {
	case r.Pool == nil:
		return nil
	case r.allowWeak:
		return r.Pool
	}
	return &tenantGuard{Builder: r.Pool, status: r.Status, store: st}
}

// close ends all children.
func (r *renderer) close() {
	if r.Pool != nil {
		r.Pool.Close()
	}
}

// newRenderHistogram returns the function that the pool calls after each render.
func newRenderHistogram(metrics prometheus.Registerer) func(child.Observation) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kedge_render_seconds",
		Help:    "Time of renders by Kustomize and Helm, by kind of source and by result.",
		Buckets: prometheus.ExponentialBuckets(0.002, 2, 15),
	}, []string{"kind", "result"})
	started := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kedge_render_processes_started_total",
		Help: "Processes that were started because no idle one was available.",
	})
	metrics.MustRegister(seconds, started)
	return func(o child.Observation) {
		seconds.WithLabelValues(o.Kind, o.Result).Observe(o.Duration.Seconds())
		if o.Cold {
			started.Inc()
		}
	}
}
