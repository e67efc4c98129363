package kube

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

// ApplyRequest is everything that applying one object needs. It has more than 20 fields because it shares nothing with
// the target: what the request has to know is copied into it.
type ApplyRequest struct {
	Owner    Owner
	Manifest manifest.Text
	Ref      fleet.ObjectRef
	Mapping  Mapping
	Policy   fleet.Policy
	Rules    fieldset.Rules // fields to ignore once the object exists
	DryRun   bool           // ask the API server for the result, and change nothing

	UID            string    // of the object that was applied last
	KeepAnnotation string    // of the manifest that was applied last
	Known          bool      // that object was seen with the label of the target since
	AbsentAt       time.Time // when a list did not have the object; zero when no list was made
	Force          bool      // fields that Kedge applied were changed: restore them
	YieldReplicas  bool      // an autoscaler owns the replicas
	Replacing      string    // the immutable field for which the object is being deleted and recreated
	Applied        []byte    // fields that were applied last, FieldsV1; nil after a restart
	AppliedNames   string    // fieldset.Names.Hash of the fields that were applied last to UID; "" when not known

	// Abandoned reports whether a target of this engine no longer desires the object. Outlived reports whether a target
	// is an earlier one of this deployment that has only an inventory left.
	Abandoned, Outlived func(holder fleet.TargetID) bool
	// HasInventory reports whether an agent has an inventory in this namespace.
	HasInventory func(ctx context.Context, agent fleet.AgentID) (bool, error)
	// KeepCause returns why the object must not be deleted and recreated; zero when it may. It is called right before the
	// deletion. It may be nil.
	KeepCause func() fleet.Cause

	live   *unstructured.Unstructured // as it was read, where that is needed; nil when it does not exist
	reread bool                       // the object was read again after a conflict
}

// ApplyResult is the result of an ApplyRequest.
type ApplyResult struct {
	Live     *unstructured.Unstructured // as the API server holds it now
	Before   *unstructured.Unstructured // as it was; only of a dry run, and nil when it did not exist
	Previous PreviousOwner              // it was taken over from an owner that no longer exists
	Adopted  *Adoption                  // it was adopted by policy; nil when it was not
	Forced   []fieldset.Conflict        // fields taken over from other managers, by policy
	Replaced string                     // the immutable field for which the object was deleted and recreated
}

// Apply applies the manifest by server-side apply. It retries when the object changed in between.
func (c *Client) Apply(ctx context.Context, j ApplyRequest) (ApplyResult, error) {
	// Enough for: somebody recreated the object, it is read again, somebody edited it, and a field of it is immutable.
	const attempts = 6
	out := ApplyResult{Replaced: j.Replacing}
	var err error
	for range attempts {
		j.expireAbsence()
		if !j.Known {
			if err := c.checkOwner(ctx, &j, &out); err != nil {
				return out, err
			}
		}
		out.Live, err = c.patch(ctx, j)
		again := false
		switch {
		case err == nil:
			return out, c.checkNew(ctx, j, out.Live)
		case apierrors.IsConflict(err):
			again, err = j.resolveConflict(err, &out)
		case apierrors.IsInvalid(err) && j.UID != "":
			again, err = c.replace(ctx, &j, &out, err)
		}
		if !again {
			return out, err
		}
	}
	return out, err
}

// resolveConflict decides what to do about a conflict. It reports whether to try again.
func (j *ApplyRequest) resolveConflict(err error, out *ApplyResult) (again bool, _ error) {
	conflicts := fieldset.ConflictsOf(err)
	last, parseErr := fieldset.Parse(j.Applied)
	switch {
	case !j.AbsentAt.IsZero():
		// Somebody created it in between: check its owner.
		j.Known, j.AbsentAt = false, time.Time{}
	case len(conflicts) == 0, len(j.Rules) > 0 && !j.reread:
		// The UID or the resourceVersion did not match: the object was recreated or deleted, or a field to ignore changed.
		j.Known, j.reread = false, true
	case fieldset.HasAutoscaler(conflicts) && !j.YieldReplicas:
		j.YieldReplicas = true
	case j.Force:
		return false, &fieldset.ConflictError{Conflicts: conflicts}
	case parseErr == nil && (fieldset.AllIn(conflicts, last) || fieldset.CompletedBy(last, conflicts, j.AppliedNames)):
		j.Force = true
	case j.Policy.Force:
		j.Force, out.Forced = true, conflicts
	default:
		return false, &fieldset.ConflictError{Conflicts: conflicts}
	}
	return true, err
}

// checkOwner reads the owner of the live object. It refuses an object that the target may not change.
func (c *Client) checkOwner(ctx context.Context, j *ApplyRequest, out *ApplyResult) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.Request)
	defer cancel()
	asked := time.Now()
	live, err := c.readLive(ctx, j)
	out.Before = j.live
	if apierrors.IsNotFound(err) {
		// As when a list did not have it: checkNew notices if somebody creates it first. There is nothing to restore, so
		// nothing is forced.
		j.Known, j.UID, j.AbsentAt, j.Force = true, "", asked, false
		return nil
	}
	if err != nil {
		return err
	}
	if j.Replacing != "" && live.GetDeletionTimestamp() != nil && string(live.GetUID()) == j.UID {
		return &NotGoneError{Field: j.Replacing, finalizers: live.GetFinalizers()}
	}
	from, err := j.orphaned(ctx, live)
	if err != nil {
		return err
	}
	adopted, err := j.Owner.MayApply(live, j.UID, func(holder fleet.TargetID) bool { return from != PreviousOwner{} || j.Abandoned(holder) })
	if err != nil {
		return err
	}
	out.Previous = from
	if adopted {
		out.Adopted = adoptionOf(live)
	}
	if j.UID != string(live.GetUID()) {
		j.AppliedNames = "" // of another object
	}
	j.Known, j.UID = true, string(live.GetUID())
	if j.Applied == nil {
		// After a restart: the fields that Kedge owns now are those that it applied, except for those that others have
		// changed since. AppliedNames shows those.
		j.Applied = fieldset.RawOwnFields(live)
	}
	// With adopt the manifest wins over the live object. Without it, fields that others set stay theirs when the object
	// changes its target.
	j.Force = j.Force || adopted || j.Owner.Adopt && from != PreviousOwner{}
	return nil
}

// readLive reads as much of the live object as the request needs.
func (c *Client) readLive(ctx context.Context, j *ApplyRequest) (metav1.Object, error) {
	if len(j.Rules) == 0 && !j.DryRun {
		return c.peek(ctx, j.Mapping, j.Ref)
	}
	live, err := c.Read(ctx, j.Mapping, j.Ref)
	if err != nil {
		live = nil
	}
	j.live = live
	return live, err
}

// PreviousOwner is the former owner of an object; the zero value is none.
type PreviousOwner struct {
	Target fleet.TargetID // of the same deployment
	Agent  fleet.AgentID  // it has no inventory left
}

// orphaned returns the former owner of a live object of this very deployment, if that owner no longer exists:
//
//   - an earlier target of the deployment that has only an inventory left, or
//   - if the deployment says adopt, an agent without an inventory here. Such an agent may still run elsewhere in the
//     cluster, which only a person can know. An agent with an inventory counts as alive.
func (j *ApplyRequest) orphaned(ctx context.Context, live metav1.Object) (PreviousOwner, error) {
	labels := live.GetLabels()
	holder, agent := fleet.TargetID(labels[LabelTarget]), fleet.AgentID(labels[LabelAgent])
	if holder == "" || holder == j.Owner.Target || live.GetAnnotations()[AnnotationDeployment] != j.Owner.Deployment {
		return PreviousOwner{}, nil
	}
	if j.Outlived(holder) {
		return PreviousOwner{Target: holder}, nil
	}
	if !j.Owner.Adopt || agent == "" || agent == j.Owner.Agent {
		return PreviousOwner{}, nil
	}
	held, err := j.HasInventory(ctx, agent)
	if err != nil || held {
		return PreviousOwner{}, err
	}
	return PreviousOwner{Agent: agent}, nil
}

func (c *Client) patch(ctx context.Context, j ApplyRequest) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.Request)
	defer cancel()
	body := j.Owner.body(j.Manifest.Object(), j.Ref, j.UID, j.YieldReplicas)
	if belongsToAgent(body.GetLabels()) {
		return nil, &Refusal{fleet.Cause{Reason: fleet.ReasonOwnInstallation,
			Message: fmt.Sprintf("carries the label %s or %s, which mark the installation of an agent", LabelInstall, inventory.LabelInventory)}}
	}
	if j.UID != "" && j.live != nil && len(j.Rules) > 0 {
		j.Rules.Preserve(body, j.live)
		j.Owner.mark(body, j.Ref, j.UID) // a rule may name our labels
	}
	options := metav1.ApplyOptions{FieldManager: fieldset.FieldManager, Force: j.Force}
	if j.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return c.resource(j.Mapping, j.Ref).Apply(ctx, j.Ref.Name, body, options)
}
