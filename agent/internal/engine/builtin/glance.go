package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// A new object is looked at before it is first applied, in case somebody else has put it there. For many
// of one kind in one namespace a single list of what is not ours says the same.
const (
	glanceFrom = 16  // objects that are worth a list
	glanceMost = 256 // objects that one list speaks for
	// glanceNext is how many of those are left to be applied when the next list is asked for: it comes just
	// in time then, and is not old when its objects have their turn.
	glanceNext = 64
	// glanceGood is how long what it says is good for: long enough for those to be applied.
	glanceGood = 2 * time.Second
)

// shelf is the place of many objects.
type shelf struct {
	mapping   mapping
	namespace string
}

// glance asks at once for new objects that would be looked at one by one. All of such a shelf wait for the
// list that speaks for them.
func (t *target) glance(now time.Time, s survey) {
	var at shelf
	var fresh []*object // of one shelf, which lies in one piece within a step but for a kind of two versions
	ready := 0          // of all shelves so far: the next list is too early while those are to be applied first
	for _, o := range t.order {
		o.queued = false
		if !t.startable(o, now, s) {
			continue
		}
		if here := (shelf{o.mapping, o.ref.Namespace}); here != at {
			ready += t.glanceAt(at, fresh, ready)
			at, fresh = here, fresh[:0]
		}
		if o.glanceable() && !t.unlisted[at] {
			fresh = append(fresh, o)
		} else {
			ready++
		}
	}
	t.glanceAt(at, fresh, ready)
}

// glanceAt asks for the next objects of a shelf, unless enough are ready to be applied before them, and returns how many more
// are on their way to be.
func (t *target) glanceAt(at shelf, fresh []*object, ready int) int {
	if len(fresh) < glanceFrom {
		return len(fresh)
	}
	for _, o := range fresh {
		o.queued = true
	}
	if ready >= glanceNext || t.inflight >= t.places() {
		return 0
	}
	next := fresh[:min(len(fresh), glanceMost)]
	t.startGlance(at, slices.Clone(next))
	return len(next)
}

// glanceable reports whether nothing is known of an object that is to be applied.
func (o *object) glanceable() bool {
	return o.phase == phaseApply && o.uid == "" && !o.known && !o.glanced && o.manifest != nil
}

func (t *target) startGlance(at shelf, objects []*object) {
	for _, o := range objects {
		o.glanced, o.glancing, o.queued = true, true, false
	}
	t.start(func(ctx context.Context) func() {
		asked := time.Now()
		taken, err := t.cluster.strangers(ctx, at, t.owner.target)
		return func() {
			t.unlisted[at] = t.unlisted[at] || errors.Is(err, errTooMany) || apierrors.IsForbidden(err)
			for _, o := range objects {
				o.glancing = false
				if err == nil && !taken[o.ref.Name] && o.glancedFor() {
					o.absent = asked
				}
			}
		}
	})
}

// glancedFor reports whether what a list says is still of use for an object.
func (o *object) glancedFor() bool { return o.phase == phaseApply && o.uid == "" && o.manifest != nil }

// errTooMany says that a list of what is not ours would be too long.
var errTooMany = errors.New("there are too many others")

// strangers returns the names of objects that do not carry the label of a target. If that is an error, each object
// is looked at.
func (c *cluster) strangers(ctx context.Context, at shelf, target fleet.TargetID) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, glanceGood) // what comes later is old
	defer cancel()
	options := metav1.ListOptions{LabelSelector: LabelTarget + "!=" + string(target), Limit: 2 * glanceMost}
	list, err := c.metadata.Resource(at.mapping.resource).Namespace(at.namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	if list.Continue != "" {
		return nil, errTooMany
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, nil
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
	if j.absent.IsZero() || j.owner.adopt || j.policy.DryRun || j.dryRun || !slices.ContainsFunc(fieldset.Entries(live), fieldset.Entry.Foreign) {
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
	_, err := c.resource(j.mapping, j.ref).Apply(ctx, j.ref.Name, body, metav1.ApplyOptions{FieldManager: fieldset.FieldManager})
	if err != nil {
		return fmt.Errorf("giving back what somebody else has made at the same moment: %w", err)
	}
	return &refusal{reason: "exists and is not managed by this deployment; set adopt: true to take it over"}
}
