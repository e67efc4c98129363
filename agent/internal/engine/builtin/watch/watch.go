package watch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubewait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// Observation is what a stream reports about one object. At most one of Live, Deleted and Missing is set. When none is,
// only the state of the stream has changed.
type Observation struct {
	Live    *unstructured.Unstructured // the object as it is
	Deleted *unstructured.Unstructured // the last state of an object that is gone, or that lost the label of the agent
	Missing string                     // the resourceVersion of a full list that did not have the object
	State   State                      // of the stream
	// Rewound: the API server does not know the versions that it reported before; its database may have been restored.
	Rewound bool
}

// ShowsObject reports whether the observation is about the object itself, and not only about the stream.
func (s Observation) ShowsObject() bool {
	return s.Live != nil || s.Deleted != nil || s.Missing != ""
}

// Then merges next into s, which nobody has evaluated yet. A change of the stream must not hide what was seen of the
// object.
func (s Observation) Then(next Observation) Observation {
	if !next.ShowsObject() {
		next.Live, next.Deleted, next.Missing = s.Live, s.Deleted, s.Missing
	}
	next.Rewound = next.Rewound || s.Rewound
	return next
}

// Observer receives observations of the objects that it is registered for. Observe must not block.
type Observer interface {
	Observe(key inventory.Key, seen Observation)
}

// Timing holds the delays of watches. Tests make them short.
type Timing struct {
	First      time.Duration // the delay before a watch is opened again; doubled each time
	Max        time.Duration // the longest such delay
	StaleAfter time.Duration // how long a watch may fail before it is stale
	Request    time.Duration // the longest that one request may take
}

// DefaultTiming is the timing of an agent.
func DefaultTiming() Timing {
	return Timing{First: 100 * time.Millisecond, Max: 10 * time.Second, StaleAfter: 30 * time.Second, Request: 35 * time.Second}
}

// New makes Watches that run until background ends. settings returns the agent whose objects are watched, and whether
// each namespace is watched by itself.
func New(background context.Context, client dynamic.Interface, log *slog.Logger, timing Timing, settings func() (fleet.AgentID, bool)) *Watches {
	return &Watches{client: client, log: log, timing: timing, settings: settings, background: background, kinds: map[kube.Mapping]*kindWatch{}, again: make(chan struct{})}
}

// Watches keeps one stream of events per kind in use, or per kind and namespace where the agent may not watch all
// namespaces. Safe for concurrent use.
type Watches struct {
	client     dynamic.Interface
	log        *slog.Logger
	timing     Timing
	settings   func() (agent fleet.AgentID, split bool)
	background context.Context // ends with the engine; streams outlive the calls that start them

	mu    sync.Mutex
	kinds map[kube.Mapping]*kindWatch
	again chan struct{} // closed, and replaced, when failed watches are opened again at once
}

type kindWatch struct {
	mapping  kube.Mapping
	kind     string
	split    bool                      // one stream per namespace
	interest map[objectName][]Observer // nearly always one
	used     map[string]int            // objects of interest by namespace
	streams  map[string]*stream        // by namespace; "" is all
}

type objectName struct{ namespace, name string }

// stream is one open watch.
type stream struct {
	cancel context.CancelFunc
	state  State
	alarm  *alarm // nil while the stream works
	// rewound: its resourceVersion expired. The next list counts, whatever its version.
	rewound bool
}

// Add registers an observer of one object and returns the state of its stream. A synced stream does not repeat what it
// reported before.
func (w *Watches) Add(m kube.Mapping, ref fleet.ObjectRef, who Observer) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[m]
	if k == nil {
		_, split := w.settings()
		k = &kindWatch{
			mapping: m, kind: ref.Kind, split: m.Namespaced && split,
			interest: map[objectName][]Observer{}, used: map[string]int{}, streams: map[string]*stream{},
		}
		w.kinds[m] = k
	}
	at := objectName{ref.Namespace, ref.Name}
	if k.interest[at] == nil {
		k.used[at.namespace]++
	}
	if !slices.Contains(k.interest[at], who) {
		k.interest[at] = append(k.interest[at], who)
	}
	return w.openLocked(k, k.streamOf(ref.Namespace)).state
}

// Remove removes an observer of one object. It closes the streams that nobody needs any more.
func (w *Watches) Remove(m kube.Mapping, ref fleet.ObjectRef, who Observer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[m]
	if k == nil {
		return
	}
	at := objectName{ref.Namespace, ref.Name}
	i := slices.Index(k.interest[at], who)
	if i < 0 {
		return
	}
	if k.interest[at] = slices.Delete(k.interest[at], i, i+1); len(k.interest[at]) > 0 {
		return
	}
	delete(k.interest, at)
	k.used[at.namespace]--
	if len(k.interest) > 0 && (!k.split || k.used[at.namespace] > 0) {
		return
	}
	if s := k.streams[k.streamOf(at.namespace)]; s != nil {
		s.close()
		delete(k.streams, k.streamOf(at.namespace))
	}
	if len(k.interest) == 0 {
		delete(w.kinds, m)
	}
}

func (k *kindWatch) streamOf(namespace string) string {
	if k.split {
		return namespace
	}
	return ""
}

func (w *Watches) openLocked(k *kindWatch, namespace string) *stream {
	if s := k.streams[namespace]; s != nil {
		return s
	}
	ctx, cancel := context.WithCancel(w.background)
	s := &stream{cancel: cancel}
	k.streams[namespace] = s
	go w.run(ctx, k, namespace, s)
	return s
}

// run keeps one stream open until ctx ends.
func (w *Watches) run(ctx context.Context, k *kindWatch, namespace string, s *stream) {
	reflector := cache.NewReflectorWithOptions(w.source(k, namespace, s), &unstructured.Unstructured{}, &sink{w: w, k: k, namespace: namespace, s: s},
		cache.ReflectorOptions{
			Name: "kedge", TypeDescription: k.mapping.Resource.String(),
			Backoff: &kubewait.Backoff{Duration: w.timing.First, Factor: 2, Jitter: 1, Steps: 10, Cap: w.timing.Max},
		})
	var pause wait.Backoff
	for ctx.Err() == nil {
		begun, again := time.Now(), w.retrySignal()
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsForbidden(err) && namespace == "" && k.mapping.Namespaced {
			w.log.Info("the kind may not be watched in all namespaces; watching each in use", "resource", k.mapping.Resource.String(), "error", err)
			w.splitKind(k)
			return
		}
		if err != nil {
			w.fail(k, namespace, s, err)
		} else if time.Since(begun) > w.timing.Max {
			pause = wait.Backoff{}
		}
		wait.ForOr(ctx, again, pause.NextJittered(w.timing.First, w.timing.Max))
	}
}

func (w *Watches) source(k *kindWatch, namespace string, s *stream) cache.ListerWatcher {
	// Objects without a target are not watched; the inventory is one.
	agent, _ := w.settings()
	selector := kube.LabelAgent + "=" + string(agent) + "," + kube.LabelTarget
	var client dynamic.ResourceInterface = w.client.Resource(k.mapping.Resource)
	if namespace != "" {
		client = w.client.Resource(k.mapping.Resource).Namespace(namespace)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := client.List(ctx, options)
			if err != nil {
				w.noteFailure(k, namespace, s, err)
				return nil, err
			}
			w.noteSuccess(k, namespace, s)
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return w.open(ctx, client, options, func(err error) { w.noteFailure(k, namespace, s, err) }, func() { w.noteSuccess(k, namespace, s) })
		},
	}
}

// splitKind replaces the stream of a whole kind by one per namespace in use.
func (w *Watches) splitKind(k *kindWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := k.streams[""]; s != nil {
		s.close()
		delete(k.streams, "")
	}
	k.split = true
	for at := range k.interest {
		w.openLocked(k, at.namespace)
	}
}

// fail tells all observers of a stream that it does not work.
func (w *Watches) fail(k *kindWatch, namespace string, s *stream, err error) {
	w.log.Debug("watching failed", "resource", k.mapping.Resource.String(), "namespace", namespace, "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.state.Reason == Stale: // until it works again
	case apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err):
		s.state = State{Reason: Forbidden, Message: err.Error()}
	default:
		s.state = State{Reason: Failing}
	}
	w.tellAllLocked(k, namespace, Observation{State: s.state})
}

func tell(k *kindWatch, at objectName, observers []Observer, seen Observation) {
	key := inventory.Key{Group: k.mapping.Resource.Group, Kind: k.kind, Namespace: at.namespace, Name: at.name}
	for _, who := range observers {
		who.Observe(key, seen)
	}
}
