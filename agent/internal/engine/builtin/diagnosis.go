package builtin

import (
	"cmp"
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// A workload that is unready for a while is diagnosed: its pods and their events are read, and its pods are watched, until
// it is ready. The pods of ready workloads are not read, so that memory and requests do not grow with the pods of the
// cluster.
const (
	// diagnoseAfter is how long a workload may be unready before its pods are read: most rollouts need
	// no explanation.
	diagnoseAfter = 3 * time.Second
	// maxDiagnoses bounds how many workloads are diagnosed at the same time.
	maxDiagnoses = 64
	// Reads per second of all workloads together, and the burst. Listing pods by label and events by object is expensive for
	// an API server with many of them: explaining a rollout of a thousand workloads must not slow it down.
	podReadsPerSecond = 2
	podReadBurst      = 10
	// The time between two reads of one workload. Each read that finds something new doubles it, so that pods that change
	// all the time do not become a stream of statuses.
	diagnoseFirst = time.Second
	diagnoseMost  = time.Minute
	// idleMost bounds the time between two reads when no pod changes: some events come without a change.
	idleMost = 5 * time.Minute
)

// diagnosis is the explanation for one workload that is not ready.
type diagnosis struct {
	client *kube.Client // with the rights of the deployment
	uid    string       // of the workload
	cancel context.CancelFunc
	found  fleet.Cause // why the pods are not ready; zero when nothing was found yet
}

// outdated reports whether the diagnosis has to start again: the workload was recreated, or is read with other rights.
func (d *diagnosis) outdated(t *target, o *object) bool {
	return d.client != t.work.client || d.uid != o.record.uid
}

// explanation returns why the health of an object is what it is. The reason of its pods is more exact than its own.
func (o *object) explanation() fleet.Cause {
	if o.health.diagnosis == nil || o.health.status == fleet.HealthCurrent {
		return o.health.cause
	}
	own, pods := o.health.cause, o.health.diagnosis.found
	return fleet.Cause{Reason: cmp.Or(pods.Reason, own.Reason), Message: joinNonEmpty("; ", own.Message, pods.Message)}
}

// podsReason returns why the pods of a workload are not ready; "" when that is not known.
func (o *object) podsReason() fleet.Reason {
	if o.health.diagnosis == nil {
		return ""
	}
	return o.health.diagnosis.found.Reason
}

// endDiagnosis stops the diagnosis of an object.
func (o *object) endDiagnosis() {
	if o.health.diagnosis != nil {
		o.health.diagnosis.cancel()
		o.health.diagnosis = nil
	}
}

// diagnose starts and stops diagnoses.
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

// diagnosable returns when an object is to be diagnosed; zero when it is not.
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
	reader, err := kube.NewPodReader(t.work.client, o.ref, o.record.uid, o.spec.manifest.Object())
	if err != nil || running == nil {
		return
	}
	ctx, cancel := context.WithCancel(running)
	d := &diagnosis{client: t.work.client, uid: o.record.uid, cancel: cancel}
	o.health.diagnosis = d
	e.work.Go(func() {
		defer cancel()
		if e.diagnosing.slots.Acquire(ctx, 1) != nil {
			return
		}
		defer e.diagnosing.slots.Release(1)
		t.followPods(ctx, reader, d, o)
	})
}

// followPods reports what is wrong with the pods of a workload until ctx ends.
func (t *target) followPods(ctx context.Context, reader *kube.PodReader, d *diagnosis, o *object) {
	var calm, idle wait.Backoff
	last, pause := fleet.Cause{}, diagnoseFirst
	for ctx.Err() == nil {
		if t.engine.diagnosing.reads.Wait(ctx) != nil {
			return
		}
		release := t.engine.client.Slot(ctx)
		found, version, err := reader.Explain(ctx)
		release()
		if apierrors.IsForbidden(err) {
			return // there is no explanation then
		}
		if err == nil && found != last {
			last, idle = found, wait.Backoff{}
			t.post(func(in *inbox) {
				in.results = append(in.results, func() {
					if o.health.diagnosis == d {
						d.found = found
					}
				})
			})
			pause = calm.NextJittered(diagnoseFirst, diagnoseMost)
		}
		wait.For(ctx, pause)
		reader.Await(ctx, version, idle.NextJittered(diagnoseFirst, idleMost))
	}
}
