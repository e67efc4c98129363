package builtin

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

// removeJob is everything that parting with one object needs.
type removeJob struct {
	owner owner
	ref   fleet.ObjectRef
	uid   string // of the object that was applied last; "" when not known
	// want says how far to go.
	want        intent
	keepMark    string // keepMarkOf the manifest that was last applied
	whole       bool   // the whole deployment is deleted
	emptied     bool   // nothing was found in it before, either
	propagation fleet.Propagation
	// wanted returns why the object must stay although its entry has to go, or "": it is desired
	// under another name or by another target.
	wanted func(uid string) string
	// hold returns why nothing may be done about the object for now, or "". It is asked just before.
	hold func() string
}

type intent int

const (
	intentLook    intent = iota // find out whether it still exists and is ours
	intentRelease               // keep it, and give up that it is ours: its deployment was deleted
	intentDetach                // the same, because its target is detached
	intentDelete
)

// String begins the message of a failure.
func (i intent) String() string {
	if i == intentRelease || i == intentDetach {
		return "cannot be let go of"
	}
	return "cannot be deleted"
}

// outcome is what became of an object that was to go.
type outcome int

const (
	outcomeThere       outcome = iota // exists, and is ours
	outcomeGone                       // confirmed: it does not exist
	outcomeUnseen                     // not there, as far as a remembered mapping can tell
	outcomeNotOurs                    // exists, and is not ours any more
	outcomeReleased                   // exists, and carries no mark of ours any more
	outcomeKept                       // asks by annotation not to be deleted
	outcomeTerminating                // deletion was accepted; finalizers have yet to run
	outcomeHeld                       // exists, and has to stay for now
	outcomeOccupied                   // exists, and others would be deleted with it
	outcomeEmpty                      // exists, and nothing was found that would be deleted with it
)

type removal struct {
	outcome outcome
	mapping mapping // zero when the kind is not served any more
	// unserved: gone with its kind, if the API server is to be believed.
	unserved bool
	note     string
	live     *unstructured.Unstructured // only with outcomeThere and outcomeReleased
}

// remove parts with one object: at each step only if the live object allows it.
func (c *cluster) remove(ctx context.Context, j removeJob) (removal, error) {
	limit := c.timing.request
	if holdsOthers(j.ref) {
		limit = c.timing.look
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, err := c.mapper.findAny(ctx, gvkOf(j.ref))
	if errors.Is(err, errUnknownKind) {
		return removal{outcome: outcomeGone, unserved: true, note: "its kind is not served any more"}, nil
	}
	if err != nil {
		return removal{}, err
	}
	// The object may change between reading and deleting it; then it is read again.
	const rounds = 6
	confirmed := false
	for range rounds {
		var out removal
		out, err = c.removeOnce(ctx, j, m)
		out.mapping = m
		if err == nil && out.outcome == outcomeUnseen && !confirmed {
			// Perhaps it is only this version of its kind that is not served any more.
			m, err = c.mapper.confirm(ctx, gvkOf(j.ref))
			if errors.Is(err, errUnknownKind) {
				return removal{outcome: outcomeGone, unserved: true, note: "its kind is not served any more"}, nil
			}
			if err != nil {
				return removal{}, err
			}
			confirmed = true
			continue
		}
		if err == nil && out.outcome == outcomeUnseen {
			out.outcome = outcomeGone
		}
		if err == nil {
			return out, nil
		}
		if !apierrors.IsConflict(err) {
			return removal{mapping: m}, err
		}
	}
	return removal{mapping: m}, err
}

func (c *cluster) removeOnce(ctx context.Context, j removeJob, m mapping) (removal, error) {
	live, err := c.peek(ctx, m, j.ref)
	if apierrors.IsNotFound(err) {
		return removal{outcome: outcomeUnseen}, nil
	}
	if err != nil {
		return removal{}, err
	}
	if j.want == intentDetach {
		return c.letGo(ctx, j, m, live)
	}
	if why := j.foreign(live); why != "" {
		return removal{outcome: outcomeNotOurs, note: why}, nil
	}
	switch {
	case live.GetDeletionTimestamp() != nil:
		return terminating(live), nil
	case j.want == intentLook:
		whole, err := c.read(ctx, m, j.ref)
		return removal{outcome: outcomeThere, live: whole}, err
	case j.hold() != "":
		return removal{outcome: outcomeHeld, note: j.hold()}, nil
	case j.want == intentRelease:
		_, err := c.release(ctx, m, j.ref, live)
		return removal{outcome: outcomeNotOurs, note: "released"}, err
	}
	if why := cmp.Or(keptByLive(live.GetAnnotations(), j.whole), keptByManifest(j.keepMark, j.whole)); why != "" {
		return removal{outcome: outcomeKept, note: why}, nil
	}
	if holdsOthers(j.ref) {
		why, err := c.occupied(ctx, m, j.ref)
		switch {
		case err != nil:
			return removal{}, &lookError{err}
		case why != "":
			return removal{outcome: outcomeOccupied, note: why}, nil
		case isNamespace(j.ref) && !j.emptied:
			return removal{outcome: outcomeEmpty}, nil
		case j.hold() != "": // which may have changed in all that time
			return removal{outcome: outcomeHeld, note: j.hold()}, nil
		}
	}
	return c.delete(ctx, j, m, live)
}

// foreign returns why a live object is not ours to delete, or "".
func (j removeJob) foreign(live *metav1.PartialObjectMetadata) string {
	labels := live.GetLabels()
	if belongsToAgent(labels) {
		return "it belongs to the installation of an agent"
	}
	if labels[LabelTarget] != string(j.owner.target) {
		return "it does not carry the label of this deployment any more"
	}
	return j.wanted(string(live.GetUID()))
}

func (c *cluster) delete(ctx context.Context, j removeJob, m mapping, live *metav1.PartialObjectMetadata) (removal, error) {
	uid, version := live.GetUID(), live.GetResourceVersion()
	propagation := metav1.DeletionPropagation(j.propagation.OrDefault())
	err := c.resource(m, j.ref).Delete(ctx, j.ref.Name, metav1.DeleteOptions{
		// Bound to what was read: another object of this name, or one that was given a new owner
		// or a keep annotation since, is left alone.
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: &propagation,
	})
	if apierrors.IsNotFound(err) {
		return removal{outcome: outcomeGone}, nil // it was read from there a moment ago
	}
	if err != nil {
		return removal{}, err
	}
	left, err := c.peek(ctx, m, j.ref)
	switch {
	case apierrors.IsNotFound(err), err == nil && left.GetUID() != uid:
		return removal{outcome: outcomeGone}, nil
	case err != nil:
		return removal{}, err
	}
	return terminating(left), nil
}

func terminating(live *metav1.PartialObjectMetadata) removal {
	return removal{outcome: outcomeTerminating, note: health.Leaving(live.GetFinalizers())}
}
