package kube

import (
	"cmp"
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/health"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// RemoveRequest is everything that deleting or releasing one object needs.
type RemoveRequest struct {
	Owner Owner
	Ref   fleet.ObjectRef
	UID   string // of the object that was applied last; "" when not known
	// Intent is what to do with the object.
	Intent          Intent
	KeepAnnotation  string // of the manifest that was last applied
	WholeDeployment bool   // the whole deployment is deleted
	FoundEmpty      bool   // an earlier request found nothing in it
	Propagation     fleet.Propagation
	// StillDesired reports whether the object with this UID must stay although its entry is removed: it is desired under
	// another name.
	StillDesired func(uid string) bool
	// KeepCause returns why the object must not be changed for now; zero when it may. It is called right before a change.
	KeepCause func() fleet.Cause
}

// Intent is what a RemoveRequest does with the object.
type Intent int

// The intents.
const (
	IntentCheck   Intent = iota // read whether it still exists and is ours
	IntentRelease               // remove the labels of Kedge: its deployment was deleted
	IntentDetach                // remove the labels of Kedge: its target is detached
	IntentDelete                // delete it
)

// String begins the message of a failure.
func (i Intent) String() string {
	switch i {
	case IntentCheck:
		return "cannot be read"
	case IntentRelease, IntentDetach:
		return "cannot be released"
	}
	return "cannot be deleted"
}

// Outcome is the result of a RemoveRequest.
type Outcome int

// The outcomes.
const (
	OutcomeExists      Outcome = iota // exists, and is ours
	OutcomeGone                       // confirmed: it does not exist
	outcomeUnseen                     // not found by a cached mapping
	OutcomeNotOurs                    // exists, and is not ours any more
	OutcomeReleased                   // exists, and carries no label of Kedge any more
	OutcomeKept                       // an annotation keeps it
	OutcomeTerminating                // deletion was accepted; finalizers have yet to run
	OutcomeWaits                      // exists, and must not be changed for now
	OutcomeOccupied                   // exists, and deleting it would delete others
	OutcomeEmpty                      // exists, and contains nothing that would be deleted with it
)

// RemoveResult is what a RemoveRequest found and did.
type RemoveResult struct {
	Outcome Outcome
	mapping Mapping // zero when the kind is not served any more
	// KindUnserved: it counts as gone because the API server does not serve its kind.
	KindUnserved bool
	// Cause is why the object exists and was not changed; only with OutcomeNotOurs, OutcomeKept, OutcomeTerminating,
	// OutcomeWaits and OutcomeOccupied.
	Cause fleet.Cause
	Live  *unstructured.Unstructured // only with OutcomeExists and OutcomeReleased
}

// Remove deletes, releases or checks one object. Before each change it reads the live object.
func (c *Client) Remove(ctx context.Context, j RemoveRequest) (RemoveResult, error) {
	limit := c.timing.Request
	if containsOthers(j.Ref) {
		limit = c.timing.Contents
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, err := c.Mapper.findAny(ctx, GVK(j.Ref))
	if errors.Is(err, ErrUnknownKind) {
		return RemoveResult{Outcome: OutcomeGone, KindUnserved: true}, nil
	}
	if err != nil {
		return RemoveResult{}, err
	}
	// The object may change between reading and deleting it; then it is read again.
	const rounds = 6
	confirmed := false
	for range rounds {
		var out RemoveResult
		out, err = c.removeOnce(ctx, j, m)
		out.mapping = m
		if err == nil && out.Outcome == outcomeUnseen && !confirmed {
			// Perhaps only this version of its kind is not served any more.
			m, err = c.Mapper.confirm(ctx, GVK(j.Ref))
			if errors.Is(err, ErrUnknownKind) {
				return RemoveResult{Outcome: OutcomeGone, KindUnserved: true}, nil
			}
			if err != nil {
				return RemoveResult{}, err
			}
			confirmed = true
			continue
		}
		if err == nil && out.Outcome == outcomeUnseen {
			out.Outcome = OutcomeGone
		}
		if err == nil {
			return out, nil
		}
		if !apierrors.IsConflict(err) {
			return RemoveResult{mapping: m}, err
		}
	}
	return RemoveResult{mapping: m}, err
}

func (c *Client) removeOnce(ctx context.Context, j RemoveRequest, m Mapping) (RemoveResult, error) {
	live, err := c.peek(ctx, m, j.Ref)
	if apierrors.IsNotFound(err) {
		return RemoveResult{Outcome: outcomeUnseen}, nil
	}
	if err != nil {
		return RemoveResult{}, err
	}
	if j.Intent == IntentDetach {
		return c.detach(ctx, j, m, live)
	}
	if why := j.foreign(live); !why.IsZero() {
		return RemoveResult{Outcome: OutcomeNotOurs, Cause: why}, nil
	}
	switch {
	case live.GetDeletionTimestamp() != nil:
		return terminating(live), nil
	case j.Intent == IntentCheck:
		whole, err := c.Read(ctx, m, j.Ref)
		return RemoveResult{Outcome: OutcomeExists, Live: whole}, err
	}
	if why := j.KeepCause(); !why.IsZero() {
		return RemoveResult{Outcome: OutcomeWaits, Cause: why}, nil
	}
	if j.Intent == IntentRelease {
		_, err := c.release(ctx, m, j.Ref, live)
		return RemoveResult{Outcome: OutcomeNotOurs, Cause: fleet.Cause{Reason: fleet.ReasonReleased}}, err
	}
	if why := cmp.Or(KeptByLive(live.GetAnnotations(), j.WholeDeployment), KeptByManifest(j.KeepAnnotation, j.WholeDeployment)); !why.IsZero() {
		return RemoveResult{Outcome: OutcomeKept, Cause: why}, nil
	}
	if containsOthers(j.Ref) {
		why, err := c.occupied(ctx, m, j.Ref)
		switch {
		case err != nil:
			return RemoveResult{}, &ContentsError{err}
		case !why.IsZero():
			return RemoveResult{Outcome: OutcomeOccupied, Cause: why}, nil
		case IsNamespace(j.Ref) && !j.FoundEmpty:
			return RemoveResult{Outcome: OutcomeEmpty}, nil
		}
		if why := j.KeepCause(); !why.IsZero() { // the check of its contents takes long
			return RemoveResult{Outcome: OutcomeWaits, Cause: why}, nil
		}
	}
	return c.delete(ctx, j, m, live)
}

// foreign returns why a live object is not ours to delete; zero when it is ours.
func (j RemoveRequest) foreign(live *metav1.PartialObjectMetadata) fleet.Cause {
	labels := live.GetLabels()
	switch {
	case belongsToAgent(labels):
		return fleet.Cause{Reason: fleet.ReasonOwnInstallation, Message: "it belongs to the installation of an agent"}
	case labels[LabelTarget] != string(j.Owner.Target):
		return fleet.Cause{Reason: fleet.ReasonNotPruned, Message: "it does not carry the label of this deployment any more"}
	case j.StillDesired(string(live.GetUID())):
		return fleet.Cause{Reason: fleet.ReasonNotPruned, Message: "it is desired under another name"}
	}
	return fleet.Cause{}
}

func (c *Client) delete(ctx context.Context, j RemoveRequest, m Mapping, live *metav1.PartialObjectMetadata) (RemoveResult, error) {
	uid, version := live.GetUID(), live.GetResourceVersion()
	propagation := metav1.DeletionPropagation(j.Propagation.OrDefault())
	err := c.resource(m, j.Ref).Delete(ctx, j.Ref.Name, metav1.DeleteOptions{
		// Bound to the object that was read: an object that was recreated, or that got a new owner or a keep
		// annotation since, is not deleted.
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: &propagation,
	})
	if apierrors.IsNotFound(err) {
		return RemoveResult{Outcome: OutcomeGone}, nil // it was read from there a moment ago
	}
	if err != nil {
		return RemoveResult{}, err
	}
	left, err := c.peek(ctx, m, j.Ref)
	switch {
	case apierrors.IsNotFound(err), err == nil && left.GetUID() != uid:
		return RemoveResult{Outcome: OutcomeGone}, nil
	case err != nil:
		return RemoveResult{}, err
	}
	return terminating(left), nil
}

func terminating(live *metav1.PartialObjectMetadata) RemoveResult {
	return RemoveResult{Outcome: OutcomeTerminating, Cause: fleet.Cause{Reason: fleet.ReasonPruning, Message: health.Leaving(live.GetFinalizers())}}
}
