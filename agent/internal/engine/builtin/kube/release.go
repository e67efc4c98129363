package kube

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

// detach releases one object of a detached target. It deletes nothing.
func (c *Client) detach(ctx context.Context, j RemoveRequest, m Mapping, live *metav1.PartialObjectMetadata) (RemoveResult, error) {
	if j.released(live) {
		whole, err := c.Read(ctx, m, j.Ref)
		return RemoveResult{Outcome: OutcomeReleased, Live: whole}, err
	}
	if why := j.foreign(live); !why.IsZero() {
		return RemoveResult{Outcome: OutcomeNotOurs, Cause: why}, nil
	}
	if why := j.KeepCause(); !why.IsZero() {
		return RemoveResult{Outcome: OutcomeWaits, Cause: why}, nil
	}
	whole, err := c.release(ctx, m, j.Ref, live)
	if apierrors.IsNotFound(err) {
		return RemoveResult{Outcome: outcomeUnseen}, nil
	}
	return RemoveResult{Outcome: OutcomeReleased, Live: whole}, err
}

// released reports whether a live object is the one that was applied last and does not carry the label any more: it was
// released before a restart, or somebody removed the label.
func (j RemoveRequest) released(live *metav1.PartialObjectMetadata) bool {
	_, held := live.GetLabels()[LabelTarget]
	return !held && j.UID != "" && string(live.GetUID()) == j.UID
}

// release removes the labels of Kedge from an object and returns the object. It is a merge patch of the labels alone: an
// apply with fewer fields would delete the fields that only Kedge owns. The patch is bound to the UID and the
// resourceVersion that were read. The annotation with the name of the deployment stays, so that a deployment of that name
// can take the object over again.
func (c *Client) release(ctx context.Context, m Mapping, ref fleet.ObjectRef, live *metav1.PartialObjectMetadata) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion(),
		"labels": map[string]any{LabelAgent: nil, LabelTarget: nil},
	}})
	if err != nil {
		return nil, fmt.Errorf("releasing %s: %w", ref, err)
	}
	return c.resource(m, ref).Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldset.FieldManager})
}
