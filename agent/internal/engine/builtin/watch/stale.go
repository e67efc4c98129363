package watch

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A stream that fails for a moment is opened again where it ended, and nobody is told. A stream that fails for long is
// stale: what it reported last may be outdated. The reflector retries some failures by itself and for ever, so failures
// are counted in the functions that it calls.

// alarm marks a stream as stale some time after its first failure.
type alarm struct{ timer *time.Timer }

// noteFailure starts the alarm of a stream that could not be opened. A stream that the agent may not open is not stale:
// that failure does not pass by itself.
func (w *Watches) noteFailure(k *kindWatch, namespace string, s *stream, err error) {
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.rewound = s.rewound || apierrors.IsResourceExpired(err)
	if s.alarm != nil || k.streams[namespace] != s {
		return
	}
	after := w.timing.StaleAfter
	a := &alarm{}
	s.alarm = a
	a.timer = time.AfterFunc(after, func() {
		w.markStale(k, namespace, s, a, fmt.Sprintf("its watch has failed for more than %v: %v", after, err))
	})
}

// markStale tells all observers of a stream that it has failed for long.
func (w *Watches) markStale(k *kindWatch, namespace string, s *stream, a *alarm, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.alarm != a {
		return // it has worked since
	}
	s.state = State{Reason: Stale, Message: why}
	w.tellAllLocked(k, namespace, Observation{State: s.state})
}

// noteSuccess stops the alarm: the stream is open, or a full list was read.
func (w *Watches) noteSuccess(k *kindWatch, namespace string, s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.alarm == nil {
		return
	}
	s.alarm.timer.Stop()
	s.alarm = nil
	if s.state.Failed() {
		// It continues where it ended, or a full list follows.
		s.state = State{Reason: Synced}
		w.tellAllLocked(k, namespace, Observation{State: s.state})
	}
}

func (w *Watches) tellAllLocked(k *kindWatch, namespace string, seen Observation) {
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
