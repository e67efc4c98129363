package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// MaxChecked is how many objects one list checks.
	MaxChecked = 256
	// checkValid is how long the answer of a list counts: long enough to apply those objects.
	checkValid = 2 * time.Second
)

// KindNamespace is a kind in one namespace.
type KindNamespace struct {
	Mapping   Mapping
	Namespace string
}

// ErrTooMany is the error of ForeignNames for a list that is too long.
var ErrTooMany = errors.New("there are too many objects of others")

// ForeignNames lists the names of the objects that do not carry the label of a target. On an error the caller has to
// check each object by itself.
func (c *Client) ForeignNames(ctx context.Context, at KindNamespace, target fleet.TargetID) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, checkValid) // a later answer would be too old
	defer cancel()
	options := metav1.ListOptions{LabelSelector: LabelTarget + "!=" + string(target), Limit: 2 * MaxChecked}
	list, err := c.Metadata.Resource(at.Mapping.Resource).Namespace(at.Namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	if list.Continue != "" {
		return nil, ErrTooMany
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, nil
}

// expireAbsence forgets that a list did not have the object, when that list is too old.
func (j *ApplyRequest) expireAbsence() {
	if !j.AbsentAt.IsZero() && time.Since(j.AbsentAt) > checkValid {
		j.Known, j.AbsentAt = false, time.Time{}
	}
}

// checkNew verifies that the apply created an object which a list did not have. If others own fields of it, somebody
// created it in between: without adopt, checkNew removes what the apply added.
func (c *Client) checkNew(ctx context.Context, j ApplyRequest, live *unstructured.Unstructured) error {
	if j.AbsentAt.IsZero() || j.Owner.Adopt || j.Policy.DryRun || j.DryRun || !slices.ContainsFunc(fieldset.Entries(live), fieldset.Entry.Foreign) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timing.Request)
	defer cancel()
	// An apply without fields removes all fields that only Kedge owns.
	body := &unstructured.Unstructured{}
	body.SetAPIVersion(live.GetAPIVersion())
	body.SetKind(live.GetKind())
	body.SetName(live.GetName())
	body.SetNamespace(live.GetNamespace())
	body.SetUID(live.GetUID())
	_, err := c.resource(j.Mapping, j.Ref).Apply(ctx, j.Ref.Name, body, metav1.ApplyOptions{FieldManager: fieldset.FieldManager})
	if err != nil {
		return fmt.Errorf("giving back what somebody else has made at the same moment: %w", err)
	}
	return NotAdopted()
}
