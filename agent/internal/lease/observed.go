package lease

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// microTime is the format of times with microseconds in the Kubernetes API.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// observedLease is the newest version of the Lease that this replica has read or written. The times in the object are not
// used, because they come from the clock of another machine.
type observedLease struct {
	object *unstructured.Unstructured // nil when the Lease does not exist
	at     time.Time                  // when this version was first observed; zero before the first read
	// deletedFrom is the holder of a Lease that was deleted. It may not have noticed the deletion yet.
	deletedFrom string
}

func (l observedLease) holder() string {
	if l.object == nil {
		return ""
	}
	holder, _, _ := unstructured.NestedString(l.object.Object, "spec", "holderIdentity")
	return holder
}

// expires returns when the Lease expires unless its holder renews it.
func (l observedLease) expires(fallback time.Duration) time.Time {
	if l.object == nil {
		return l.at.Add(fallback)
	}
	seconds, ok, _ := unstructured.NestedInt64(l.object.Object, "spec", "leaseDurationSeconds")
	if !ok || seconds <= 0 || time.Duration(seconds)*time.Second > maxDuration {
		return l.at.Add(fallback)
	}
	return l.at.Add(time.Duration(seconds) * time.Second)
}

// maxDuration is the longest accepted duration of a Lease, so that a wrong value cannot prevent an election for days.
const maxDuration = time.Minute

// refresh reads the Lease.
func (e *Elector) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.timing.request)
	defer cancel()
	object, err := e.cfg.Leases.Get(ctx, e.cfg.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		e.observe(nil)
	case err != nil:
		return fmt.Errorf("reading Lease %s: %w", e.cfg.Name, err)
	default:
		e.observe(object)
	}
	return nil
}

// observe records a version of the Lease; nil means that it does not exist. A version that is known already keeps the time
// when it was first observed.
func (e *Elector) observe(object *unstructured.Unstructured) {
	e.mu.Lock()
	defer e.mu.Unlock()
	previous := e.lease
	same := (previous.object == nil) == (object == nil) && !previous.at.IsZero()
	if same && (object == nil || previous.object.GetResourceVersion() == object.GetResourceVersion()) {
		return
	}
	e.lease = observedLease{object: object, at: time.Now()}
	if object == nil {
		e.lease.deletedFrom = previous.holder()
	}
	e.warnOtherAgentLocked()
	e.changed.Set()
}

func (e *Elector) observed() observedLease {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lease
}

// write sets the holder of an observed Lease. It fails with a conflict when the Lease has changed since.
func (e *Elector) write(ctx context.Context, lease observedLease, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, e.timing.request)
	defer cancel()
	object := e.withHolder(lease, holder)
	var written *unstructured.Unstructured
	var err error
	if lease.object == nil {
		written, err = e.cfg.Leases.Create(ctx, object, metav1.CreateOptions{})
	} else {
		written, err = e.cfg.Leases.Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Lease %s: %w", e.cfg.Name, err)
	}
	e.observe(written)
	return nil
}

// withHolder returns the Lease to write for a holder, which may be the current one.
func (e *Elector) withHolder(lease observedLease, holder string) *unstructured.Unstructured {
	now := time.Now().UTC().Format(microTime)
	spec := map[string]any{}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": e.cfg.Name},
	}}
	if lease.object != nil {
		object = lease.object.DeepCopy()
		old, _, _ := unstructured.NestedMap(object.Object, "spec")
		maps.Copy(spec, old)
	}
	newHolder := lease.holder() != holder
	if newHolder && holder != "" {
		transitions, _ := spec["leaseTransitions"].(int64)
		spec["acquireTime"], spec["leaseTransitions"] = now, transitions+1
	}
	spec["holderIdentity"], spec["renewTime"] = holder, now
	spec["leaseDurationSeconds"] = int64(e.timing.duration / time.Second)
	object.Object["spec"] = spec
	e.annotate(object, newHolder)
	return object
}
