package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// Config is the configuration of an Engine.
type Config struct {
	// Namespace is where the agent is installed and keeps its inventory.
	Namespace string
	REST      *rest.Config
	Reporter  engine.Reporter
	Log       *slog.Logger // nil discards
	Metrics   *Metrics     // nil counts nothing

	// AgentID, Scope, Namespaces and Kinds are set by Configure. If they are empty, targets wait until Configure is called.
	AgentID    fleet.AgentID
	Scope      fleet.Scope
	Namespaces []string
	Kinds      fleet.KindFilter
	// Owner is set by Restrict.
	Owner ownerpolicy.Policy
	// Strict makes the engine panic where it would log a bug and go on. It is for tests.
	Strict bool
}

// Engine applies targets to one cluster. Its methods are safe for concurrent use. It has more than 20 fields because it is
// what the targets share: most of them are parts with a lock of their own.
type Engine struct {
	namespace  string
	reporter   engine.Reporter
	log        *slog.Logger
	metrics    *Metrics
	timing     timing
	strict     bool
	client     *kube.Client
	store      *inventory.Store
	claims     *claims
	finishes   *finishes
	watchers   watchers       // set by Run
	work       sync.WaitGroup // targets and their requests
	gc         collector
	diagnosing diagnosing
	setting    sync.Mutex // held by Set, so that claims are made in the order of versions

	mu        sync.Mutex
	settings  settings
	editions  int // of settings
	targets   map[fleet.TargetID]*target
	past      past
	recovered bool
	running   context.Context // nil before Run
	pending   int             // targets whose newest state is not set yet
}

// watchers report changes in the cluster.
type watchers struct {
	objects     *watch.Watches
	definitions *watch.Definitions
	namespaces  *watch.Namespaces
}

// diagnosing bounds how many workloads are diagnosed at the same time, and how often their pods are read.
type diagnosing struct {
	slots *semaphore.Weighted
	reads *rate.Limiter
}

// past is what is known about targets that are not reconciled: not any more, or not yet.
type past struct {
	inventories map[fleet.TargetID]*inventory.Inventory // recovered, and not used by a target yet
	deleted     map[fleet.TargetID]deletedTarget
	takenOver   map[takeover]bool // objects that were taken over from such inventories
}

var _ engine.Engine = (*Engine)(nil)

// New makes an engine. It does no I/O.
func New(cfg Config) (*Engine, error) {
	return newEngine(cfg, defaultTiming())
}

func newEngine(cfg Config, timing timing) (*Engine, error) {
	if cfg.Namespace == "" || cfg.REST == nil || cfg.Reporter == nil {
		return nil, errors.New("making the builtin engine: Namespace, REST and Reporter are needed")
	}
	client, err := kube.NewClient(cfg.REST, timing.requests)
	if err != nil {
		return nil, err
	}
	configMaps := client.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(cfg.Namespace)
	e := &Engine{
		namespace: cfg.Namespace, reporter: cfg.Reporter, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		timing: timing, client: client, store: inventory.NewStore(configMaps), finishes: newFinishes(),
		settings: settings{agent: cfg.AgentID, scope: cfg.Scope, namespaces: slices.Clone(cfg.Namespaces), kinds: cfg.Kinds, policy: cfg.Owner},
		targets:  map[fleet.TargetID]*target{},
		past: past{
			inventories: map[fleet.TargetID]*inventory.Inventory{}, deleted: map[fleet.TargetID]deletedTarget{}, takenOver: map[takeover]bool{},
		},
		diagnosing: diagnosing{slots: semaphore.NewWeighted(maxDiagnoses), reads: rate.NewLimiter(podReadsPerSecond, podReadBurst)},
		metrics:    cfg.Metrics, strict: cfg.Strict,
	}
	e.claims = newClaims(e)
	return e, nil
}

// Configure sets what the server says about this agent. It may be called again when that changes. Objects that are not
// allowed any more fail visibly; they are not deleted.
func (e *Engine) Configure(agent fleet.AgentID, scope fleet.Scope, namespaces []string, kinds fleet.KindFilter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := settings{agent: agent, scope: scope, namespaces: slices.Clone(namespaces), kinds: kinds, policy: e.settings.policy}
	if e.settings.agent == next.agent && e.settings.scope == next.scope && slices.Equal(e.settings.namespaces, next.namespaces) &&
		e.settings.kinds.Equal(next.kinds) {
		return
	}
	e.settings = next
	e.editions++
	for _, t := range e.targets {
		t.reconsider()
	}
}

// Restrict sets what the owner of the cluster allows. Objects that are not allowed any more fail visibly; they are not
// deleted.
func (e *Engine) Restrict(p ownerpolicy.Policy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settings.policy = p
	e.editions++
	for _, t := range e.targets {
		t.reconsider()
	}
}

// Retry makes everything due that failed and waits for its next attempt.
func (e *Engine) Retry() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watchers.objects != nil {
		e.watchers.objects.Retry()
	}
	for _, t := range e.targets {
		t.reconsider()
	}
}

// config returns the current settings.
func (e *Engine) config() settings {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settings
}

// watched returns the agent whose objects are watched, and whether each namespace is watched by itself.
func (e *Engine) watched() (agent fleet.AgentID, split bool) {
	s := e.config()
	return s.agent, s.scope == fleet.ScopeNamespaced
}

// edition increases with every change of the settings.
func (e *Engine) edition() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.editions
}

// Recover implements [engine.Engine]. It reads every inventory in the namespace of the agent. An inventory of another
// agent ID is of this agent before it was enrolled again, since the namespace belongs to one agent.
func (e *Engine) Recover(ctx context.Context) ([]engine.Held, error) {
	found, err := e.store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("recovering what this agent holds: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recovered = true
	var held []engine.Held
	for _, inv := range found {
		rec := inv.Record()
		e.past.inventories[rec.Target] = inv
		for key, entry := range rec.Entries {
			e.finishes.set(key, rec.Target, finish{entry.Hash, entry.Finished})
		}
		if names := inv.Damaged(); len(names) > 0 {
			e.reporter.Event(rec.Target, fleet.Event{
				At: time.Now(), Type: fleet.EventWarning, Reason: fleet.ReasonInventoryDamaged, Deployment: rec.Deployment,
				Message: fmt.Sprintf("ConfigMap %s/%s cannot be read as a part of the inventory; nothing of this deployment is deleted until it is repaired or removed", e.namespace, names[0]),
			})
		}
		held = append(held, engine.Held{Target: rec.Target, Version: rec.Version, Digest: rec.Digest})
	}
	return held, nil
}

// Run implements [engine.Engine].
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	if !e.recovered || e.running != nil {
		e.mu.Unlock()
		return errors.New("running the builtin engine: Recover has to come first, and Run is called once")
	}
	e.running = ctx
	e.watchers.objects = watch.New(ctx, e.client.Dynamic, e.log, e.timing.watches, e.watched)
	e.watchers.definitions = watch.NewDefinitions(ctx, e.client.Metadata, e.client.Mapper, e.log, e.timing.watches)
	e.watchers.namespaces = watch.NewNamespaces(ctx, e.client.Own, e.log, e.timing.watches)
	for _, t := range e.targets {
		e.startLocked(t)
	}
	e.mu.Unlock()
	<-ctx.Done()
	e.mu.Lock()   // no Set can start another target from here on
	e.mu.Unlock() //nolint:staticcheck // the section is empty on purpose: it waits for a Set that holds the lock
	e.work.Wait()
	return nil
}

func (e *Engine) startLocked(t *target) {
	if e.running == nil || e.running.Err() != nil {
		return
	}
	e.work.Go(func() { t.run(e.running) })
}

// Set implements [engine.Engine].
func (e *Engine) Set(d engine.Desired) {
	e.setting.Lock()
	defer e.setting.Unlock()
	if e.isDeleted(d) {
		return
	}
	d = withNamespace(d)
	t := e.target(d.Target)
	if !t.accept(d) {
		return
	}
	if d.Source == nil { // a refused state changes nothing
		e.claims.set(d)
	}
	t.signal()
}

// Pending implements [engine.Engine].
func (e *Engine) Pending(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := (n > 0) != (e.pending > 0)
	e.pending = n
	if !changed {
		return
	}
	for _, t := range e.targets {
		t.signal()
	}
}

// isPending reports whether states of other targets have not arrived yet.
func (e *Engine) isPending() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pending > 0
}

// target returns the target of an ID. It makes and starts one if there is none.
func (e *Engine) target(id fleet.TargetID) *target {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.targets[id]
	if t != nil {
		return t
	}
	var held fleet.Version
	if inv := e.past.inventories[id]; inv != nil {
		held = inv.Version()
	}
	t = newTarget(e, id, held)
	e.targets[id] = t
	e.startLocked(t)
	return t
}

// available implements claimListener.
func (e *Engine) available(id fleet.TargetID) { e.retryTarget(id) }

// released implements claimListener.
func (e *Engine) released(id fleet.TargetID) {
	e.mu.Lock()
	t := e.targets[id]
	e.mu.Unlock()
	if t != nil {
		t.post(func(in *inbox) { in.claimsReleased = true })
	}
}

// retryTarget makes everything due that failed in a target.
func (e *Engine) retryTarget(id fleet.TargetID) {
	e.mu.Lock()
	t := e.targets[id]
	e.mu.Unlock()
	if t != nil {
		t.reconsider()
	}
}
