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

// RenderConfig says how Kustomize and Helm render: in children of the server, which are confined. Zero
// fields take their defaults.
type RenderConfig struct {
	// Program is what children run: this program, whose main turns into one when it is asked to, see
	// child.Self. Without it Kustomize and Helm are refused.
	Program string
	// Timeout, Memory and Output bound one render; default 30 s, 1 GiB, or less where there is less memory, and
	// 64 MiB. Timeout is for plain manifests too.
	Timeout        time.Duration
	Memory, Output int64
	// Processes is how many renders go on at once; default four times the number of processors, or as many as
	// the memory holds, of which one tenant has a quarter.
	Processes int
	// RequireSandbox are mechanisms of package sandbox, or "all": the server does not start without.
	RequireSandbox []string
	// AllowWeakSandbox renders for several tenants although a mechanism of the sandbox is missing. Without it only
	// the default tenant's are rendered then.
	AllowWeakSandbox bool

	idle int                 // processes that wait for the next render; 0 for the pool's default
	off  []sandbox.Mechanism // left out, for tests
}

// mechanisms are the ones that are required.
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

// limits are those of what is rendered without a child.
func (c RenderConfig) limits() render.Limits { return render.Limits{Time: c.Timeout} }

// renderer is the pool with what there is to say about it.
type renderer struct {
	*child.Pool      // nil when there is none
	allowWeak   bool // several tenants may render in an incomplete sandbox
}

// note says what is wrong with renders as things are; "" when nothing is.
func (r *renderer) note() string {
	if r.Pool == nil {
		return ""
	}
	if err := r.Failure(); err != nil {
		return "Kustomize and Helm cannot be rendered: " + err.Error()
	}
	if status, _ := r.Status(); status.Problem() != "" {
		note := "the sandbox of renders is weaker than it could be: " + status.Problem()
		if !r.allowWeak {
			note += "; where there are several tenants Kustomize and Helm are rendered for the tenant " + fleet.DefaultTenant + " alone: " + weakSandboxAdvice
		}
		return note
	}
	return ""
}

// openRenderer starts the first child, to know whether that works and what confines it. It fails only when
// what is required is not to be had: plain manifests need no child.
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
		cfg.Log.Warn("the sandbox of renders is weaker than it could be", obs.KeyReason, problem, slog.Any("active", status.Active))
	default:
		cfg.Log.Info("renders are confined", slog.Any("active", status.Active))
	}
	return &renderer{Pool: pool, allowWeak: cfg.Render.AllowWeakSandbox}, nil
}

// builder is what control renders with; nil when there is none.
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

// newRenderHistogram returns what the pool is to call after each render.
func newRenderHistogram(metrics prometheus.Registerer) func(child.Observation) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kedge_render_seconds",
		Help:    "Time of renders by Kustomize and Helm, by kind of source and by what came of it.",
		Buckets: prometheus.ExponentialBuckets(0.002, 2, 15),
	}, []string{"kind", "result"})
	started := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kedge_render_processes_started_total",
		Help: "Processes that were started because none was waiting for a render.",
	})
	metrics.MustRegister(seconds, started)
	return func(o child.Observation) {
		seconds.WithLabelValues(o.Kind, o.Result).Observe(o.Duration.Seconds())
		if o.Cold {
			started.Inc()
		}
	}
}
