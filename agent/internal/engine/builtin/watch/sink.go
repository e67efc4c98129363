package watch

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sink is the store of a reflector. It passes objects on and keeps none, so that memory does not grow with their size.
type sink struct {
	w         *Watches
	k         *kindWatch
	namespace string
	s         *stream
}

func (s *sink) Add(obj any) error    { return s.pass(obj, false) }
func (s *sink) Update(obj any) error { return s.pass(obj, false) }
func (s *sink) Delete(obj any) error { return s.pass(obj, true) }
func (s *sink) Resync() error        { return nil }

func (s *sink) pass(obj any, deleted bool) error {
	live, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	seen := Observation{Live: live, State: State{Reason: Synced}}
	if deleted {
		seen = Observation{Deleted: live, State: State{Reason: Synced}}
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	at := objectName{live.GetNamespace(), live.GetName()}
	tell(s.k, at, s.k.interest[at], seen)
	return nil
}

// Replace handles a full list: an object that it lacks may have been deleted while the stream was interrupted.
func (s *sink) Replace(items []any, version string) error {
	listed := make(map[objectName]*unstructured.Unstructured, len(items))
	for _, item := range items {
		if live, ok := item.(*unstructured.Unstructured); ok {
			listed[objectName{live.GetNamespace(), live.GetName()}] = live
		}
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	rewound := s.s.rewound
	s.s.state, s.s.rewound = State{Reason: Synced}, false
	for at, observers := range s.k.interest {
		switch live := listed[at]; {
		case s.k.streamOf(at.namespace) != s.namespace:
		case live != nil:
			tell(s.k, at, observers, Observation{Live: live, State: s.s.state, Rewound: rewound})
		default:
			tell(s.k, at, observers, Observation{Missing: version, State: s.s.state, Rewound: rewound})
		}
	}
	return nil
}
