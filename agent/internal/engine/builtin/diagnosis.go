package builtin

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/backoff"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// A workload that is not ready for a moment is diagnosed: its pods and their events are read, and watched,
// until it is ready. Nothing is read of workloads that are ready, so that the memory and the requests of an
// engine do not grow with the pods of a cluster.
const (
	// diagnoseAfter is how long a workload may be unready before its pods are looked at: most rollouts
	// need no explanation.
	diagnoseAfter = 3 * time.Second
	// maxDiagnoses bounds the workloads that are looked at together.
	maxDiagnoses = 64
	// Looks per second, of all workloads together, after so many at once. To list pods by labels and events by their object costs
	// an API server the more, the more there are: a rollout of a thousand workloads must not be slowed down by being explained.
	podReadsPerSecond = 2
	podReadBurst      = 10
	// The time between two looks at one workload. Each look that finds something else doubles it, so that
	// pods which change all the time do not become a stream of statuses.
	diagnoseFirst = time.Second
	diagnoseMost  = time.Minute
	// idleMost bounds the time between two looks when no pod changes: some events come without one.
	idleMost = 5 * time.Minute
)

// diagnosis is what is found out about one workload that is not ready.
type diagnosis struct {
	cluster *kube.Client // with the rights of the deployment
	uid     string       // of the workload
	cancel  context.CancelFunc
	text    string // what was found; "" when nothing was yet
}

// outdated reports whether another look is needed: the workload was made anew, or is read with other rights.
func (d *diagnosis) outdated(t *target, o *object) bool {
	return d.cluster != t.work.client || d.uid != o.record.uid
}

// explanation is why the health of an object is what it is.
func (o *object) explanation() string {
	if o.health.diagnosis == nil || o.health.status == fleet.HealthCurrent {
		return o.health.note
	}
	return joinNonEmpty("; ", o.health.note, o.health.diagnosis.text)
}

// endDiagnosis ends the look at the pods of an object.
func (o *object) endDiagnosis() {
	if o.health.diagnosis != nil {
		o.health.diagnosis.cancel()
		o.health.diagnosis = nil
	}
}

// diagnose starts and ends diagnoses, as the health of the workloads asks for it.
func (t *target) diagnose() {
	idle := t.stopped.any() || t.end.done || t.work.client == nil || t.work.desired.State.Detached
	for _, o := range t.order {
		if o.health.diagnosis == nil && o.health.unreadySince.IsZero() {
			continue // nearly all
		}
		due := o.diagnosable()
		switch {
		case idle || due.IsZero() || o.health.diagnosis != nil && o.health.diagnosis.outdated(t, o):
			o.endDiagnosis()
		case o.health.diagnosis == nil && !t.now.Before(due):
			t.startDiagnosis(o)
		}
	}
}

// diagnosable is when an object is to be diagnosed; zero when it is not.
func (o *object) diagnosable() time.Time {
	unready := o.health.status == fleet.HealthInProgress || o.health.status == fleet.HealthFailed
	if !unready || o.health.unreadySince.IsZero() || o.leaving != nil || !o.kind.resolved || !o.inPlace() || !isWorkload(o.ref) {
		return time.Time{}
	}
	return o.health.unreadySince.Add(diagnoseAfter)
}

// isWorkload reports whether an object has pods of its own.
func isWorkload(ref fleet.ObjectRef) bool {
	switch ref.Kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet":
		return ref.Group == "apps"
	case "Job":
		return ref.Group == "batch"
	}
	return false
}

func (t *target) startDiagnosis(o *object) {
	e := t.engine
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	look, err := kube.NewPodReader(t.work.client, o.ref, o.record.uid, o.spec.manifest.Object())
	if err != nil || running == nil {
		return
	}
	ctx, cancel := context.WithCancel(running)
	d := &diagnosis{cluster: t.work.client, uid: o.record.uid, cancel: cancel}
	o.health.diagnosis = d
	e.work.Go(func() {
		defer cancel()
		if e.diagnoses.Acquire(ctx, 1) != nil {
			return
		}
		defer e.diagnoses.Release(1)
		t.followPods(ctx, look, d, o)
	})
}

// followPods tells what is wrong with the pods of a workload until ctx ends.
func (t *target) followPods(ctx context.Context, look *kube.PodReader, d *diagnosis, o *object) {
	var calm, idle backoff.Backoff
	last, pause := "", diagnoseFirst
	for ctx.Err() == nil {
		if t.engine.podReads.Wait(ctx) != nil {
			return
		}
		release := t.engine.cluster.Slot(ctx)
		text, version, err := look.Explain(ctx)
		release()
		if apierrors.IsForbidden(err) {
			return // then nothing is said, as before
		}
		if err == nil && text != last {
			last, idle = text, backoff.Backoff{}
			t.post(func(in *inbox) {
				in.results = append(in.results, func() {
					if o.health.diagnosis == d {
						d.text = text
					}
				})
			})
			pause = calm.Next(diagnoseFirst, diagnoseMost)
		}
		backoff.Wait(ctx, nil, pause)
		look.Await(ctx, version, idle.Next(diagnoseFirst, idleMost))
	}
}
