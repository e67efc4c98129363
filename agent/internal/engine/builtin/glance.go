package builtin

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// A new object is looked at before it is first applied, in case somebody else has put it there. For many
// of one kind in one namespace a single list of what is not ours says the same.
const (
	glanceFrom = 16  // objects that are worth a list
	glanceMost = 256 // objects that one list speaks for
	// glanceGood is how long what it says is good for: long enough for those to be applied.
	glanceGood = 2 * time.Second
)

// place of many objects.
type shelf struct {
	mapping   mapping
	namespace string
}

// glance asks at once for new objects that would be looked at one by one. Those that a list speaks for
// wait for it.
func (t *target) glance(s survey) {
	var found map[shelf][]*object
	for _, o := range t.order {
		if !o.glanceable() || !o.resolved || !o.listed || o.step > s.gate || t.now.Before(o.due) || t.waitsFor(o) != nil {
			continue
		}
		at := shelf{o.mapping, o.ref.Namespace}
		if len(found[at]) == glanceMost {
			continue
		}
		if found == nil {
			found = map[shelf][]*object{}
		}
		found[at] = append(found[at], o)
	}
	for at, objects := range found {
		if len(objects) >= glanceFrom && t.inflight < parallelism {
			t.startGlance(at, objects)
		}
	}
}

// glanceable reports whether nothing is known of an object that is to be applied.
func (o *object) glanceable() bool {
	return o.phase == phaseApply && o.uid == "" && !o.known && !o.glanced && o.manifest != nil
}

func (t *target) startGlance(at shelf, objects []*object) {
	for _, o := range objects {
		o.glanced, o.glancing = true, true
	}
	t.start(func(ctx context.Context) func() {
		asked := time.Now()
		taken, whole := t.cluster.strangers(ctx, at, t.owner.target)
		return func() {
			for _, o := range objects {
				o.glancing = false
				if whole && !taken[o.ref.Name] && o.glancedFor() {
					o.absent = asked
				}
			}
		}
	})
}

// glancedFor reports whether what a list says is still of use for an object.
func (o *object) glancedFor() bool { return o.phase == phaseApply && o.uid == "" && o.manifest != nil }

// strangers returns the names of objects that do not carry the label of a target. whole is false when there are
// too many of them to say, or when they could not be listed: then each object is looked at.
func (c *cluster) strangers(ctx context.Context, at shelf, target fleet.TargetID) (names map[string]bool, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	resource := c.metadata.Resource(at.mapping.resource)
	options := metav1.ListOptions{LabelSelector: LabelTarget + "!=" + string(target), Limit: 2 * glanceMost}
	list, err := resource.Namespace(at.namespace).List(ctx, options)
	if err != nil || list.Continue != "" {
		return nil, false
	}
	names = make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, true
}

// doubtAbsence has an object looked at when what a list has said of it is old.
func (j *applyJob) doubtAbsence() {
	if !j.absent.IsZero() && time.Since(j.absent) > glanceGood {
		j.known, j.absent = false, time.Time{}
	}
}

// checkNew makes sure that an object which a list did not have was really made by us. If it has fields of
// others, somebody was faster: without adopt, what was just added to it is taken back.
func (c *cluster) checkNew(ctx context.Context, j applyJob, live *unstructured.Unstructured) error {
	if j.absent.IsZero() || j.owner.adopt || j.policy.DryRun || j.dryRun || !slices.ContainsFunc(live.GetManagedFields(), isSomebodys) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	// An apply without fields gives up all that are ours alone.
	body := &unstructured.Unstructured{}
	body.SetAPIVersion(live.GetAPIVersion())
	body.SetKind(live.GetKind())
	body.SetName(live.GetName())
	body.SetNamespace(live.GetNamespace())
	body.SetUID(live.GetUID())
	_, err := c.resource(j.mapping, j.ref).Apply(ctx, j.ref.Name, body, metav1.ApplyOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("giving back what somebody else has made at the same moment: %w", err)
	}
	return &refusal{reason: "exists and is not managed by this deployment; set adopt: true to take it over"}
}

func isSomebodys(entry metav1.ManagedFieldsEntry) bool {
	return !isOurs(entry) && entry.Subresource == ""
}
