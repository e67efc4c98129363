package builtin

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sink stands where a reflector expects a cache. It passes on what it is given and keeps nothing,
// so that memory does not grow with the size of objects.
type sink struct {
	w         *watches
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
	seen := observation{live: live}
	if deleted {
		seen = observation{deleted: live}
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	at := place{live.GetNamespace(), live.GetName()}
	tell(s.k, at, s.k.interest[at], seen)
	return nil
}

// Replace takes a full list: what it lacks may have been deleted while nobody watched.
func (s *sink) Replace(items []any, version string) error {
	listed := make(map[place]*unstructured.Unstructured, len(items))
	for _, item := range items {
		if live, ok := item.(*unstructured.Unstructured); ok {
			listed[place{live.GetNamespace(), live.GetName()}] = live
		}
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	rewound := s.s.rewound
	s.s.sight, s.s.rewound = sight{synced: true}, false
	for at, observers := range s.k.interest {
		switch live := listed[at]; {
		case s.k.streamOf(at.namespace) != s.namespace:
		case live != nil:
			tell(s.k, at, observers, observation{live: live, rewound: rewound})
		default:
			tell(s.k, at, observers, observation{missing: version, rewound: rewound})
		}
	}
	return nil
}
