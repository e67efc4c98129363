package builtin

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// letGo parts with one object of a detached target. Whatever it finds, it deletes nothing.
func (c *cluster) letGo(ctx context.Context, j removeJob, m mapping, live *metav1.PartialObjectMetadata) (removal, error) {
	if j.released(live) {
		whole, err := c.read(ctx, m, j.ref)
		return removal{outcome: outcomeReleased, live: whole}, err
	}
	if why := j.foreign(live); why != "" {
		return removal{outcome: outcomeNotOurs, note: why}, nil
	}
	if why := j.hold(); why != "" {
		return removal{outcome: outcomeHeld, note: why}, nil
	}
	whole, err := c.release(ctx, m, j.ref, live)
	if apierrors.IsNotFound(err) {
		return removal{outcome: outcomeUnseen}, nil
	}
	return removal{outcome: outcomeReleased, live: whole}, err
}

// released reports whether a live object is the one that was applied last and has lost our label: it
// was let go of before a kill, or somebody has taken the label off.
func (j removeJob) released(live *metav1.PartialObjectMetadata) bool {
	_, held := live.GetLabels()[LabelTarget]
	return !held && j.uid != "" && string(live.GetUID()) == j.uid
}

// release takes our labels off an object and returns what is left. Nothing else is touched: an apply
// with fewer fields would delete those that are ours alone, a merge patch names just the labels. It
// is bound to what was read by UID and resource version. The annotation with the deployment's name
// stays: it says where the object came from, and lets a deployment of that name take it up again.
func (c *cluster) release(ctx context.Context, m mapping, ref fleet.ObjectRef, live *metav1.PartialObjectMetadata) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion(),
		"labels": map[string]any{LabelAgent: nil, LabelTarget: nil},
	}})
	if err != nil {
		return nil, fmt.Errorf("releasing %s: %w", ref, err)
	}
	return c.resource(m, ref).Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldset.FieldManager})
}
