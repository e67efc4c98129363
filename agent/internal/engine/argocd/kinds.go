package argocd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// comparedKinds is the kind filter with which Argo CD has compared an Application. Argo CD sees only objects that the project
// allows, and does not compare again when the project changes.
type comparedKinds struct {
	filter *fleet.KindFilter // nil before the first pass
	due    time.Time         // of the next comparison; zero when none is needed
}

// compareKinds has Argo CD compare again after the kind filter has changed. It reports whether that was requested now.
func (t *target) compareKinds(ctx context.Context, app *application) (bool, error) {
	now := t.engine.config().kinds
	c := &t.kinds
	if c.filter == nil {
		c.filter = &now
	}
	if !c.filter.Equal(now) {
		c.filter, c.due = &now, time.Now().Add(t.engine.timing.retryFirst) // Argo CD needs a moment to see the project
	}
	if c.due.IsZero() {
		return false, nil
	}
	if time.Now().Before(c.due) {
		t.at(c.due)
		return false, nil
	}
	if err := t.annotate(ctx, app, map[string]string{annotationRefresh: "normal"}); err != nil {
		return false, fmt.Errorf("requesting a comparison with the new kind filter: %w", err)
	}
	c.due = time.Time{}
	return true, nil
}

// holdRefused returns the holds with the objects that leave the source while the kind filter excludes them. They are written
// together with the version, so that a wider filter does not delete them.
func (t *target) holdRefused(app *application, holds map[string]inventory.Hold) string {
	kinds := t.engine.config().kinds
	for _, r := range app.objects() {
		name := r.ref().String()
		if holds[name] == "" && kinds.Refusal(r.ref()) != "" && !slices.Contains(t.work.Source.Objects, name) {
			holds[name] = inventory.HeldByKindFilter
		}
	}
	return holdsText(holds)
}

// unlisted describes the objects that have left the source and that Argo CD does not list, because the kind filter excludes
// them.
func (t *target) unlisted(app *application, holds map[string]inventory.Hold) (out []fleet.ObjectStatus) {
	kinds := t.engine.config().kinds
	for name, hold := range holds {
		ref := objectOf(name)
		why := kinds.Refusal(ref)
		listed := slices.ContainsFunc(app.objects(), func(r resourceStatus) bool { return r.ref().String() == name })
		desired := t.work.Source != nil && slices.Contains(t.work.Source.Objects, name)
		if hold == inventory.HeldByKindFilter && why != "" && !listed && !desired {
			out = append(out, fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncSynced, Health: fleet.HealthUnknown,
				Reason: fleet.ReasonKindNotAllowed, Message: "is not in the source any more; kept: " + why})
		}
	}
	slices.SortFunc(out, func(a, b fleet.ObjectStatus) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// objectOf returns an object from its name, as from ObjectRef.String.
func objectOf(name string) fleet.ObjectRef {
	ref := fleet.ParseObjectKind(name)
	_, path, _ := strings.Cut(name, " ")
	var found bool
	if ref.Namespace, ref.Name, found = strings.Cut(path, "/"); !found {
		ref.Namespace, ref.Name = "", path
	}
	return ref
}
