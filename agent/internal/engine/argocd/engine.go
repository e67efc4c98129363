package argocd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// Config is the configuration of an Engine.
type Config struct {
	// Namespace is where the agent is installed, and EngineNamespace the namespace of Argo CD.
	Namespace, EngineNamespace string
	REST                       *rest.Config
	Reporter                   engine.Reporter
	// Foreign gets the list of the Applications in EngineNamespace that the agent does not manage, when it has changed; nil
	// if they need not be listed.
	Foreign func(fleet.ForeignApplications)
	// Checked gets the results of the checks of all push environments, when one has changed; nil if nobody needs them.
	Checked func([]fleet.EnvironmentCheck)
	Log     *slog.Logger // nil discards

	// AgentID, Scope, Namespaces and Kinds are set by Configure.
	AgentID    fleet.AgentID
	Scope      fleet.Scope
	Namespaces []string
	Kinds      fleet.KindFilter
	// Owner is set by Restrict.
	Owner ownerpolicy.Policy
}

// Engine has Argo CD apply targets. Its methods are safe for concurrent use.
type Engine struct {
	namespace, engineNamespace string
	reporter                   engine.Reporter
	log                        *slog.Logger
	timing                     timing
	applications, projects     dynamic.ResourceInterface
	cache                      *cache
	secrets
	foreign         func(fleet.ForeignApplications)
	writingProjects projectWrites // projects are shared by targets
	work            sync.WaitGroup
	setting         sync.Mutex // held by Set and by the end of a target

	mu       sync.Mutex
	settings settings
	targets  map[fleet.TargetID]*target
	past
	running context.Context // nil before Run
	pending int
}

// past is what the engine knows of targets besides those that it works on.
type past struct {
	recovered map[fleet.TargetID]fleet.Version // from the Applications; nil before Recover
	ended     map[fleet.TargetID]engine.Status // last status of targets that were deleted or detached
	current   map[string]fleet.TargetID        // the target with a source that came last, by TENANT/DEPLOYMENT
}

// secrets are the Secrets that the engine writes for Argo CD.
type secrets struct {
	repositories *repositories
	clusters     *clusters
	unused       wait.Signal // a Secret, or an AppProject, may have lost its last user
}

// settings are what server and owner of the cluster say about the agent.
type settings struct {
	agent      fleet.AgentID
	scope      fleet.Scope
	namespaces []string
	kinds      fleet.KindFilter
	policy     ownerpolicy.Policy
}

// timing holds the delays of the engine.
type timing struct {
	retryFirst, retryMax time.Duration // of failed writes
	syncFirst, syncMax   time.Duration // of failed syncs and comparisons
	request              time.Duration // the longest that one request may take
}

func defaultTiming() timing {
	return timing{retryFirst: 500 * time.Millisecond, retryMax: 10 * time.Second, syncFirst: 5 * time.Second, syncMax: 3 * time.Minute, request: 35 * time.Second}
}

var _ engine.Engine = (*Engine)(nil)

// New makes an engine. It does no I/O.
func New(cfg Config) (*Engine, error) {
	if cfg.Namespace == "" || cfg.EngineNamespace == "" || cfg.REST == nil || cfg.Reporter == nil {
		return nil, errors.New("making the Argo CD engine: Namespace, EngineNamespace, REST and Reporter are needed")
	}
	config := rest.CopyConfig(cfg.REST)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the Argo CD engine: %w", err)
	}
	e := &Engine{
		namespace: cfg.Namespace, engineNamespace: cfg.EngineNamespace, reporter: cfg.Reporter, foreign: cfg.Foreign,
		log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), timing: defaultTiming(),
		applications: client.Resource(applicationsResource).Namespace(cfg.EngineNamespace),
		projects:     client.Resource(projectsResource).Namespace(cfg.EngineNamespace),
		settings:     settings{agent: cfg.AgentID, scope: cfg.Scope, namespaces: slices.Clone(cfg.Namespaces), kinds: cfg.Kinds, policy: cfg.Owner},
		targets:      map[fleet.TargetID]*target{}, past: past{ended: map[fleet.TargetID]engine.Status{}, current: map[string]fleet.TargetID{}},
		writingProjects: projectWrites{written: map[string]map[string]any{}}, secrets: secrets{unused: wait.NewSignal()},
	}
	e.cache = newCache(e)
	secretClient := client.Resource(secretsResource).Namespace(cfg.EngineNamespace)
	e.repositories, e.clusters = newRepositories(e, secretClient), newClusters(e, secretClient, cfg.Checked)
	return e, nil
}

// Configure sets what the server says about this agent. It may be called again when that changes. Nothing is deleted
// because of it.
func (e *Engine) Configure(agent fleet.AgentID, scope fleet.Scope, namespaces []string, kinds fleet.KindFilter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settings.agent, e.settings.scope, e.settings.namespaces, e.settings.kinds = agent, scope, slices.Clone(namespaces), kinds
	e.signalAllLocked()
}

// Restrict sets what the owner of the cluster allows. Nothing is deleted because of it.
func (e *Engine) Restrict(p ownerpolicy.Policy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settings.policy = p
	e.signalAllLocked()
}

// Retry makes everything due that failed and waits for its next attempt.
func (e *Engine) Retry() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.targets {
		t.retry()
	}
}

func (e *Engine) signalAllLocked() {
	for _, t := range e.targets {
		t.wake.Set()
	}
}

// signalWaitingLocked wakes the targets that wait for others.
func (e *Engine) signalWaitingLocked() {
	for _, t := range e.targets {
		if t.waitsForOthers.Load() {
			t.wake.Set()
		}
	}
}

func (e *Engine) wakeWaiting() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signalWaitingLocked()
}

// selector selects what belongs to this agent.
func (e *Engine) selector() string { return labelAgent + "=" + string(e.config().agent) }

func (e *Engine) config() settings {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settings
}

// Recover implements [engine.Engine]. The Applications of the agent are its inventory.
func (e *Engine) Recover(ctx context.Context) ([]engine.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timing.request)
	defer cancel()
	found, err := e.applications.List(ctx, metav1.ListOptions{LabelSelector: e.selector()})
	if err != nil && !absent(err) {
		return nil, fmt.Errorf("recovering the Applications of this agent in namespace %q: %w", e.engineNamespace, err)
	}
	if err == nil {
		e.sweepProjects(ctx)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recovered = map[fleet.TargetID]fleet.Version{}
	if err != nil {
		return nil, nil // there is no Argo CD yet, or the agent may not use it: each target says so
	}
	var held []engine.Held
	for i := range found.Items {
		a := parse(&found.Items[i])
		id := fleet.TargetID(a.raw.GetLabels()[labelTarget])
		if id == "" {
			continue
		}
		e.recovered[id] = a.version()
		held = append(held, engine.Held{Target: id, Version: a.version(), Digest: a.annotation(annotationDigest)})
	}
	return held, nil
}

// Run implements [engine.Engine].
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	if e.recovered == nil || e.running != nil {
		e.mu.Unlock()
		return errors.New("running the Argo CD engine: Recover has to come first, and Run is called once")
	}
	e.running = ctx
	e.cache.start(ctx, &e.work)
	if e.foreign != nil {
		f := newForeign(e)
		e.work.Go(func() { f.follow(ctx) })
		e.work.Go(func() { f.report(ctx) })
	}
	for _, t := range e.targets {
		e.startLocked(t)
	}
	e.work.Go(func() { e.clusters.check(ctx) })
	e.work.Go(func() { e.releaseUnused(ctx) })
	e.mu.Unlock()
	<-ctx.Done()
	e.mu.Lock()   // no Set can start another target from here on
	e.mu.Unlock() //nolint:staticcheck // the section is empty on purpose: it waits for a Set that holds the lock
	e.work.Wait()
	return nil
}

// lifetime returns the context of Run.
func (e *Engine) lifetime() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

func (e *Engine) startLocked(t *target) {
	if e.running != nil && e.running.Err() == nil {
		e.work.Go(func() { t.run(e.running) })
	}
}

// Set implements [engine.Engine].
func (e *Engine) Set(d engine.Desired) {
	e.repositories.set(d.Tenant, d.Source)
	e.setting.Lock()
	defer e.setting.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if last, ok := e.ended[d.Target]; ok {
		if d.State.Compare(last.Observed.Version) <= 0 {
			last.Observed.AsOf = time.Now()
			e.reporter.Status(last)
			return
		}
		delete(e.ended, d.Target)
	}
	t := e.targets[d.Target]
	if t == nil {
		t = newTarget(e, d.Target, e.recovered[d.Target])
		e.targets[d.Target] = t
		e.startLocked(t)
	}
	if t.accept(d) {
		e.succeedLocked(d)
	}
	e.signalWaitingLocked()
}

// Pending implements [engine.Engine].
func (e *Engine) Pending(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := (n > 0) != (e.pending > 0)
	e.pending = n
	if changed {
		e.signalAllLocked()
	}
}

func (e *Engine) isPending() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pending > 0
}

// maxEnded bounds how many ended targets are remembered.
const maxEnded = 4096

// retire forgets a target that has ended. It returns false when something newer has arrived.
func (e *Engine) retire(t *target, last engine.Status) bool {
	e.setting.Lock()
	defer e.setting.Unlock()
	if t.hasNewer(last.Observed.Version) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.targets, t.id)
	delete(e.recovered, t.id)
	maps.DeleteFunc(e.current, func(_ string, id fleet.TargetID) bool { return id == t.id })
	if len(e.ended) >= maxEnded {
		clear(e.ended)
	}
	e.ended[t.id] = last
	e.signalWaitingLocked()
	e.unused.Set() // its project, if it had no Application
	return true
}
