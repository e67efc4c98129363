package builtin

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A stream that fails for a moment is nothing: it is opened again where it ended. One that fails
// for long leaves everybody with what it told last, which is then not to be believed any more. The
// reflector retries some failures on its own and for ever, so that this is noticed where it asks.

// alarm runs from the first failure of a stream on.
type alarm struct{ timer *time.Timer }

// failing notes that a stream could not be opened. What the agent is not allowed to watch is told
// apart: that is no failure that passes.
func (w *watches) failing(k *kindWatch, namespace string, s *stream, err error) {
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.rewound = s.rewound || apierrors.IsResourceExpired(err)
	if s.alarm != nil || k.streams[namespace] != s {
		return
	}
	after := w.timing.blindAfter
	a := &alarm{}
	s.alarm = a
	a.timer = time.AfterFunc(after, func() {
		w.darken(k, namespace, s, a, fmt.Sprintf("its watch has failed for more than %v: %v", after, err))
	})
}

// darken tells everybody who relies on a stream that it has failed for long.
func (w *watches) darken(k *kindWatch, namespace string, s *stream, a *alarm, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.alarm != a {
		return // it works again, or did
	}
	s.sight = sight{blind: true, dark: why}
	w.tellAllLocked(k, namespace, observation{blind: true, dark: why})
}

// working notes that a stream is open, or that a full list was read, which is as good for a while.
func (w *watches) working(k *kindWatch, namespace string, s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.alarm == nil {
		return
	}
	s.alarm.timer.Stop()
	s.alarm = nil
	if s.sight.blind {
		// Either it goes on where it ended, or a full list follows.
		s.sight = sight{synced: true}
		w.tellAllLocked(k, namespace, observation{sighted: true})
	}
}

func (w *watches) tellAllLocked(k *kindWatch, namespace string, seen observation) {
	for at, observers := range k.interest {
		if k.streamOf(at.namespace) == namespace {
			tell(k, at, observers, seen)
		}
	}
}

// close ends a stream. The caller holds the lock of the watches.
func (s *stream) close() {
	s.cancel()
	if s.alarm != nil {
		s.alarm.timer.Stop()
		s.alarm = nil
	}
}
