package lease

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/wait"
)

// microTime is how the API server writes times with microseconds.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// sighting is the Lease as it was last seen or written. Only content and version of the object are
// believed, never its times: they are of another clock.
type sighting struct {
	object *unstructured.Unstructured // nil when there is none
	at     time.Time                  // when this version was first seen; zero before the first look
	// deprived is who held a Lease that was deleted under it, and who may not know that yet.
	deprived string
}

func (s sighting) holder() string {
	if s.object == nil {
		return ""
	}
	holder, _, _ := unstructured.NestedString(s.object.Object, "spec", "holderIdentity")
	return holder
}

// expires is when the holder has to have renewed at the latest.
func (s sighting) expires(fallback time.Duration) time.Time {
	if s.object == nil {
		return s.at.Add(fallback)
	}
	seconds, ok, _ := unstructured.NestedInt64(s.object.Object, "spec", "leaseDurationSeconds")
	if !ok || seconds <= 0 || time.Duration(seconds)*time.Second > maxDuration {
		return s.at.Add(fallback)
	}
	return s.at.Add(time.Duration(seconds) * time.Second)
}

// maxDuration is what is believed of a Lease that says how long it lasts: a mistake in it must not
// keep everybody from leading for days.
const maxDuration = time.Minute

// look reads the Lease.
func (e *Elector) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.timing.request)
	defer cancel()
	object, err := e.cfg.Leases.Get(ctx, e.cfg.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		e.see(nil)
	case err != nil:
		return fmt.Errorf("reading Lease %s: %w", e.cfg.Name, err)
	default:
		e.see(object)
	}
	return nil
}

// see takes in a version of the Lease. One that is known already changes nothing, not even when it
// was seen.
func (e *Elector) see(object *unstructured.Unstructured) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.seen
	same := (was.object == nil) == (object == nil) && !was.at.IsZero()
	if same && (object == nil || was.object.GetResourceVersion() == object.GetResourceVersion()) {
		return
	}
	e.seen = sighting{object: object, at: time.Now()}
	if object == nil {
		e.seen.deprived = was.holder()
	}
	e.meetLocked()
	wait.Signal(e.changed)
}

func (e *Elector) sighted() sighting {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// write makes holder the holder of the Lease that was seen, and fails with a conflict when it has
// changed since.
func (e *Elector) write(ctx context.Context, seen sighting, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, e.timing.request)
	defer cancel()
	next := e.next(seen, holder)
	var written *unstructured.Unstructured
	var err error
	if seen.object == nil {
		written, err = e.cfg.Leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		written, err = e.cfg.Leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Lease %s: %w", e.cfg.Name, err)
	}
	e.see(written)
	return nil
}

// next is the Lease with another holder, or with the same one once more.
func (e *Elector) next(seen sighting, holder string) *unstructured.Unstructured {
	now := time.Now().UTC().Format(microTime)
	spec := map[string]any{}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": e.cfg.Name},
	}}
	if seen.object != nil {
		object = seen.object.DeepCopy()
		old, _, _ := unstructured.NestedMap(object.Object, "spec")
		maps.Copy(spec, old)
	}
	if was := seen.holder(); was != holder {
		transitions, _ := spec["leaseTransitions"].(int64)
		if holder != "" {
			spec["acquireTime"], spec["leaseTransitions"] = now, transitions+1
		}
	}
	spec["holderIdentity"], spec["renewTime"] = holder, now
	spec["leaseDurationSeconds"] = int64(e.timing.duration / time.Second)
	object.Object["spec"] = spec
	e.sign(object, seen.holder() != holder)
	return object
}
