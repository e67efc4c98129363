package builtin

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// applyJob is everything that applying one object needs; it shares nothing with the target.
type applyJob struct {
	owner    owner
	manifest manifest.Text
	ref      fleet.ObjectRef
	mapping  mapping
	policy   fleet.Policy
	rules    fieldset.Rules // fields that may differ once the object exists
	dryRun   bool           // have the API server say what would come of it, and change nothing

	uid       string    // of the object that was applied last
	keepMark  string    // keepMarkOf the manifest that was applied last
	known     bool      // that object was seen alive, with our label, since
	absent    time.Time // when a list has shown that there is none; zero when none has
	force     bool      // what was ours has been changed: take it back
	yield     bool      // an autoscaler owns the replicas
	replacing string    // the field for which the object is being deleted, to be created anew
	fields    []byte    // what was applied last

	// abandoned reports whether a target of this engine desires the object no more, outlived whether
	// one of this deployment is known to nobody but an inventory here.
	abandoned, outlived func(holder fleet.TargetID) bool
	// holds reports whether an agent has an inventory here.
	holds func(ctx context.Context, agent fleet.AgentID) (bool, error)
	// hold returns why the object must not be deleted to be created anew, or "". It is asked just
	// before; nil is never.
	hold func() string

	live   *unstructured.Unstructured // as it was looked at, where that is needed; nil when it is not there
	reread bool                       // a conflict was looked at with what is there now
}

// result is what came of an apply.
type result struct {
	live     *unstructured.Unstructured // as the API server holds it now
	before   *unstructured.Unstructured // as it was; only of a dry run, and nil when there was none
	from     former                     // it was taken over from somebody who is no more
	adopted  *adoption                  // it was taken over by policy; nil when it was not
	taken    []fieldset.Conflict        // fields taken over from other managers, by policy
	replaced string                     // the field for which the object was deleted and created anew
}

// apply makes the object what the manifest says.
func (c *cluster) apply(ctx context.Context, j applyJob) (result, error) {
	// Enough for: the object was replaced under us, is looked at again, turns out to be edited, and a
	// field of it cannot be changed.
	const rounds = 6
	out := result{replaced: j.replacing}
	var err error
	for range rounds {
		j.doubtAbsence()
		if !j.known {
			if err := c.look(ctx, &j, &out); err != nil {
				return out, err
			}
		}
		out.live, err = c.patch(ctx, j)
		again := false
		switch {
		case err == nil:
			return out, c.checkNew(ctx, j, out.live)
		case apierrors.IsConflict(err):
			again, err = j.judge(err, &out)
		case apierrors.IsInvalid(err) && j.uid != "":
			again, err = c.replace(ctx, &j, &out, err)
		}
		if !again {
			return out, err
		}
	}
	return out, err
}

// judge decides what to do about a conflict, and reports whether to try again.
func (j *applyJob) judge(err error, out *result) (again bool, _ error) {
	conflicts := fieldset.ConflictsOf(err)
	last, parseErr := fieldset.Parse(j.fields)
	switch {
	case !j.absent.IsZero():
		// It is there after all: whose it is decides.
		j.known, j.absent = false, time.Time{}
	case len(conflicts) == 0, len(j.rules) > 0 && !j.reread:
		// The UID or the version did not fit: it is another object by now, or none. Or what was read
		// of a field that may differ is not so any more.
		j.known, j.reread = false, true
	case fieldset.HasAutoscaler(conflicts) && !j.yield:
		j.yield = true
	case j.force:
		return false, &fieldset.ConflictError{Conflicts: conflicts}
	case parseErr == nil && fieldset.AllIn(conflicts, last):
		j.force = true
	case j.policy.Force:
		j.force, out.taken = true, conflicts
	default:
		return false, &fieldset.ConflictError{Conflicts: conflicts}
	}
	return true, err
}

// look reads who owns the live object, and refuses to go on when it is not ours to change.
func (c *cluster) look(ctx context.Context, j *applyJob, out *result) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	asked := time.Now()
	live, err := c.lookAt(ctx, j)
	out.before = j.live
	if apierrors.IsNotFound(err) {
		// As when a list did not have it: who puts it there before us is noticed. Nothing has to be taken
		// back of what is not there, and nothing must be taken from them.
		j.known, j.uid, j.absent, j.force = true, "", asked, false
		return nil
	}
	if err != nil {
		return err
	}
	if j.replacing != "" && live.GetDeletionTimestamp() != nil && string(live.GetUID()) == j.uid {
		return &notGone{field: j.replacing, finalizers: live.GetFinalizers()}
	}
	from, err := j.orphaned(ctx, live)
	if err != nil {
		return err
	}
	adopted, err := j.owner.claim(live, j.uid, func(holder fleet.TargetID) bool { return from != former{} || j.abandoned(holder) })
	if err != nil {
		return err
	}
	out.from = from
	if adopted {
		out.adopted = adoptionOf(live)
	}
	j.known, j.uid = true, string(live.GetUID())
	if j.fields == nil {
		// After a restart: what is still ours was ours.
		j.fields = fieldset.RawOwnFields(live)
	}
	// Who says adopt wants the manifest to win over what is there. Without it, what others have set on an
	// object that changes hands stays theirs, as it would have with the target before.
	j.force = j.force || adopted || j.owner.adopt && from != former{}
	return nil
}

// lookAt reads as much of the live object as the job needs.
func (c *cluster) lookAt(ctx context.Context, j *applyJob) (metav1.Object, error) {
	if len(j.rules) == 0 && !j.dryRun {
		return c.peek(ctx, j.mapping, j.ref)
	}
	live, err := c.read(ctx, j.mapping, j.ref)
	if err != nil {
		live = nil
	}
	j.live = live
	return live, err
}

// former is who has left an object here; the zero value is nobody.
type former struct {
	target fleet.TargetID // of the same deployment
	agent  fleet.AgentID  // of which nothing else is left here
}

// orphaned returns who has left a live object here and is no more, for this very deployment:
//
//   - an earlier target of it that is known to nobody but an inventory here, or
//   - if the deployment says adopt, an agent that keeps no inventory here any more. It may live on
//     elsewhere in this cluster, which only a person can know; one that keeps one is alive as far as
//     anybody can tell.
func (j *applyJob) orphaned(ctx context.Context, live metav1.Object) (former, error) {
	labels := live.GetLabels()
	holder, agent := fleet.TargetID(labels[LabelTarget]), fleet.AgentID(labels[LabelAgent])
	if holder == "" || holder == j.owner.target || live.GetAnnotations()[AnnotationDeployment] != j.owner.deployment {
		return former{}, nil
	}
	if j.outlived(holder) {
		return former{target: holder}, nil
	}
	if !j.owner.adopt || agent == "" || agent == j.owner.agent {
		return former{}, nil
	}
	held, err := j.holds(ctx, agent)
	if err != nil || held {
		return former{}, err
	}
	return former{agent: agent}, nil
}

func (c *cluster) patch(ctx context.Context, j applyJob) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	body := j.owner.body(j.manifest.Object(), j.ref, j.uid, j.yield)
	if belongsToAgent(body.GetLabels()) {
		return nil, &refusal{fmt.Sprintf("carries the label %s or %s, which mark the installation of an agent", LabelInstall, inventory.LabelInventory)}
	}
	if j.uid != "" && j.live != nil && len(j.rules) > 0 {
		j.rules.Preserve(body, j.live)
		j.owner.mark(body, j.ref, j.uid) // whatever a rule names
	}
	options := metav1.ApplyOptions{FieldManager: fieldset.FieldManager, Force: j.force}
	if j.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return c.resource(j.mapping, j.ref).Apply(ctx, j.ref.Name, body, options)
}
