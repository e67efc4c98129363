package builtin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// applyJob is everything that applying one object needs; it shares nothing with the target.
type applyJob struct {
	owner    owner
	manifest manifest.Object
	ref      fleet.ObjectRef
	mapping  mapping

	uid    string // of the object that was applied last
	known  bool   // that object was seen alive, with our label, since
	force  bool   // what was ours has been changed: take it back
	yield  bool   // an autoscaler owns the replicas
	fields []byte // what was applied last

	abandoned func(holder fleet.TargetID) bool
	// holds reports whether an agent has an inventory here. orphan is set to the agent that the object
	// is taken over from because it has none.
	holds  func(ctx context.Context, agent fleet.AgentID) (bool, error)
	orphan *fleet.AgentID
}

// apply makes the object what the manifest says and returns it as the API server holds it now.
func (c *cluster) apply(ctx context.Context, j applyJob) (*unstructured.Unstructured, error) {
	// Enough for: the object was replaced under us, is looked at again, and turns out to be edited.
	const rounds = 4
	var err error
	for range rounds {
		if !j.known {
			if err := c.look(ctx, &j); err != nil {
				return nil, err
			}
		}
		var live *unstructured.Unstructured
		live, err = c.patch(ctx, j)
		if err == nil {
			return live, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, err
		}
		conflicts := fieldConflicts(err)
		if len(conflicts) == 0 {
			// The UID did not fit: it is another object by now, or none.
			j.known = false
			continue
		}
		if wantsReplicas(conflicts) && !j.yield {
			j.yield = true
			continue
		}
		last, parseErr := parseFields(j.fields)
		if parseErr != nil || j.force || !allOurs(conflicts, last) {
			return nil, &conflictError{conflicts}
		}
		j.force = true
	}
	return nil, err
}

// look reads who owns the live object, and refuses to go on when it is not ours to change.
func (c *cluster) look(ctx context.Context, j *applyJob) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	live, err := c.peek(ctx, j.mapping, j.ref)
	if apierrors.IsNotFound(err) {
		j.known, j.uid = true, ""
		return nil
	}
	if err != nil {
		return err
	}
	orphan, err := j.orphaned(ctx, live)
	if err != nil {
		return err
	}
	adopted, err := j.owner.claim(live, j.uid, func(holder fleet.TargetID) bool { return orphan || j.abandoned(holder) })
	if err != nil {
		return err
	}
	j.known, j.uid = true, string(live.GetUID())
	if j.fields == nil {
		// After a restart: what is still ours was ours.
		j.fields = rawOurFields(live)
	}
	// Who says adopt wants the manifest to win over what is there.
	j.force = j.force || adopted || orphan
	return nil
}

// orphaned reports whether a live object was left by an agent that was this one before it was
// enrolled anew: of the same deployment, which says adopt, and of an agent that keeps no inventory
// here any more. One that does is alive as far as anybody can tell.
func (j *applyJob) orphaned(ctx context.Context, live metav1.Object) (bool, error) {
	agent := fleet.AgentID(live.GetLabels()[LabelAgent])
	if !j.owner.adopt || agent == "" || agent == j.owner.agent || live.GetAnnotations()[AnnotationDeployment] != j.owner.deployment {
		return false, nil
	}
	held, err := j.holds(ctx, agent)
	if err != nil || held {
		return false, err
	}
	*j.orphan = agent
	return true, nil
}

func (c *cluster) patch(ctx context.Context, j applyJob) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	body := j.owner.body(j.manifest, j.ref, j.uid, j.yield)
	if _, ok := body.GetLabels()[LabelInstall]; ok {
		return nil, &refusal{fmt.Sprintf("carries the label %s, which marks the installation of an agent", LabelInstall)}
	}
	return c.resource(j.mapping, j.ref).Apply(ctx, j.ref.Name, body, metav1.ApplyOptions{FieldManager: FieldManager, Force: j.force})
}
