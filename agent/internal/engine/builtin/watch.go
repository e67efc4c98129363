package builtin

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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// observation is what a watch has seen of one object, and how well the watch works. One of live, deleted
// and missing is set, or none; blind, with denied and dark, or sighted, or neither.
type observation struct {
	live    *unstructured.Unstructured // it is like that
	deleted *unstructured.Unstructured // it was like that and is gone, or has lost our label
	missing string                     // a full list of this resourceVersion did not have it
	blind   bool                       // the watch does not work
	denied  string                     // why, when the agent may not watch it
	dark    string                     // why, when it has failed for long
	sighted bool                       // the watch works again, and has missed nothing
	// rewound: the API server does not know what was seen before, and may have gone back in time.
	rewound bool
}

// shows reports whether something was seen of the object itself.
func (s observation) shows() bool {
	return s.live != nil || s.deleted != nil || s.missing != "" || !s.blind && !s.sighted
}

// then is what is known when next comes after s and nobody has looked at s yet. How well the watch works
// says nothing of the object, so that it must not hide what was seen of it.
func (s observation) then(next observation) observation {
	if !next.shows() {
		next.live, next.deleted, next.missing = s.live, s.deleted, s.missing
	}
	next.rewound = next.rewound || s.rewound
	return next
}

// observer is told of the objects that it is interested in. observe must not block.
type observer interface {
	observe(key inventory.Key, seen observation)
}

// watches holds one stream of events per kind in use, or per kind and namespace where the agent
// may not see more. It keeps no objects. Safe for concurrent use.
type watches struct {
	client     dynamic.Interface
	log        *slog.Logger
	timing     timing
	settings   func() settings
	background context.Context // ends with the engine; streams outlive the calls that start them

	mu    sync.Mutex
	kinds map[kube.Mapping]*kindWatch
	again chan struct{} // closed, and replaced, when what failed is to be tried at once
}

type kindWatch struct {
	mapping  kube.Mapping
	kind     string
	split    bool                 // one stream per namespace
	interest map[place][]observer // nearly always one
	used     map[string]int       // places of interest by namespace
	streams  map[string]*stream   // by namespace; "" is all
}

type place struct{ namespace, name string }

// stream is one open watch.
type stream struct {
	cancel context.CancelFunc
	sight  sight
	alarm  *alarm // nil while the stream works
	// rewound: what it has told is expired. The next list counts, whatever its version.
	rewound bool
}

// sight is how well an object is watched. The zero value is "not yet".
type sight struct {
	synced bool
	blind  bool
	denied string
	dark   string
}

// add tells who of one object from now on, and returns how well it is watched at this moment: what
// a synced stream has said before is not said again.
func (w *watches) add(m kube.Mapping, ref fleet.ObjectRef, who observer) sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[m]
	if k == nil {
		k = &kindWatch{
			mapping: m, kind: ref.Kind, split: m.Namespaced && w.settings().scope == fleet.ScopeNamespaced,
			interest: map[place][]observer{}, used: map[string]int{}, streams: map[string]*stream{},
		}
		w.kinds[m] = k
	}
	at := place{ref.Namespace, ref.Name}
	if k.interest[at] == nil {
		k.used[at.namespace]++
	}
	if !slices.Contains(k.interest[at], who) {
		k.interest[at] = append(k.interest[at], who)
	}
	return w.openLocked(k, k.streamOf(ref.Namespace)).sight
}

// remove ends the interest of who in one object, and the streams that nobody needs any more.
func (w *watches) remove(m kube.Mapping, ref fleet.ObjectRef, who observer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[m]
	if k == nil {
		return
	}
	at := place{ref.Namespace, ref.Name}
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

func (w *watches) openLocked(k *kindWatch, namespace string) *stream {
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
func (w *watches) run(ctx context.Context, k *kindWatch, namespace string, s *stream) {
	reflector := cache.NewReflectorWithOptions(w.source(k, namespace, s), &unstructured.Unstructured{}, &sink{w: w, k: k, namespace: namespace, s: s},
		cache.ReflectorOptions{
			Name: "kedge", TypeDescription: k.mapping.Resource.String(),
			Backoff: &wait.Backoff{Duration: w.timing.watchFirst, Factor: 2, Jitter: 1, Steps: 10, Cap: w.timing.watchMax},
		})
	var pause backoff
	for ctx.Err() == nil {
		begun, again := time.Now(), w.word()
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
			w.blinded(k, namespace, s, err)
		} else if time.Since(begun) > w.timing.watchMax {
			pause = backoff{}
		}
		linger(ctx, again, pause.next(w.timing.watchFirst, w.timing.watchMax))
	}
}

func (w *watches) source(k *kindWatch, namespace string, s *stream) cache.ListerWatcher {
	// Objects that carry no target are not ours to watch: the inventory itself, for one.
	selector := kube.LabelAgent + "=" + string(w.settings().agent) + "," + kube.LabelTarget
	var client dynamic.ResourceInterface = w.client.Resource(k.mapping.Resource)
	if namespace != "" {
		client = w.client.Resource(k.mapping.Resource).Namespace(namespace)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := client.List(ctx, options)
			if err != nil {
				w.failing(k, namespace, s, err)
				return nil, err
			}
			w.working(k, namespace, s)
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return w.open(ctx, client, options, func(err error) { w.failing(k, namespace, s, err) }, func() { w.working(k, namespace, s) })
		},
	}
}

// splitKind replaces the stream of a whole kind by one per namespace in use.
func (w *watches) splitKind(k *kindWatch) {
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

// blinded tells everybody who relies on a stream that it does not work.
func (w *watches) blinded(k *kindWatch, namespace string, s *stream, err error) {
	w.log.Debug("watching failed", "resource", k.mapping.Resource.String(), "namespace", namespace, "error", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	s.sight = sight{blind: true, dark: s.sight.dark}
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		s.sight.denied = err.Error()
	}
	for at, observers := range k.interest {
		if k.streamOf(at.namespace) == namespace {
			tell(k, at, observers, observation{blind: true, denied: s.sight.denied, dark: s.sight.dark})
		}
	}
}

func tell(k *kindWatch, at place, observers []observer, seen observation) {
	key := inventory.Key{Group: k.mapping.Resource.Group, Kind: k.kind, Namespace: at.namespace, Name: at.name}
	for _, who := range observers {
		who.observe(key, seen)
	}
}
