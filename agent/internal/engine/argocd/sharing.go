package argocd

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// parseShared returns the object, as KIND/NAME, and the Application that a message about a shared object names. Argo CD tells
// them only in the message: "KIND/NAME is part of applications NAMESPACE/APPLICATION and OTHER".
func parseShared(message string) (object, other string, ok bool) {
	object, applications, ok := strings.Cut(message, " is part of applications ")
	_, other, two := strings.Cut(applications, " and ")
	return object, other, ok && two
}

// holders returns, by KIND/NAME, who has the objects that a sync has failed for, because Argo CD tracks them for another
// Application.
func (t *target) holders(ctx context.Context, app *application, last attempt) map[string]fleet.Cause {
	if !last.failed {
		return nil
	}
	out, of := map[string]fleet.Cause{}, map[string]fleet.Cause{}
	for _, message := range app.shared() {
		object, other, ok := parseShared(message)
		if !ok {
			continue
		}
		if _, known := of[other]; !known {
			of[other] = t.holder(ctx, other)
		}
		out[object] = of[other]
	}
	return out
}

// holder describes the Application that has an object. Deployments of other tenants are not named.
func (t *target) holder(ctx context.Context, name string) fleet.Cause {
	owned := func(format string, args ...any) fleet.Cause {
		return fleet.Cause{Reason: fleet.ReasonOwnedByOther, Message: fmt.Sprintf(format, args...)}
	}
	a, _, _ := t.engine.cache.application(name)
	if a == nil && !strings.ContainsAny(name, "/ ") { // an Application of another namespace is NAMESPACE/NAME, which is no valid name
		found, err := t.engine.applications.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fleet.Cause{Reason: fleet.ReasonNotAdopted, Message: fmt.Sprintf(
				"exists and is not managed by this deployment: Argo CD tracks it for Application %q, which does not exist any more; set adopt: true to take it over", name)}
		}
		if err == nil {
			a = parse(found)
		}
	}
	switch {
	case a == nil, a.raw.GetLabels()[labelManagedBy] != managedBy:
		return owned("belongs to Application %q; remove it there first", name)
	case a.tenant() != t.work.Tenant:
		return owned("belongs to a deployment of another tenant")
	case a.annotation(annotationDeployment) == t.work.Tenant+"/"+t.work.Deployment:
		return owned("is held by another target of this deployment (target %s, agent %s): let the environment select one of both agents",
			a.raw.GetLabels()[labelTarget], a.raw.GetLabels()[labelAgent])
	}
	return owned("belongs to another deployment (%s, target %s); remove it there first", a.annotation(annotationDeployment), a.raw.GetLabels()[labelTarget])
}

// heldByOthers begins the message of a failed sync with the first object that another Application has.
func heldByOthers(objects []fleet.ObjectStatus) string {
	for _, o := range objects {
		if o.Sync == fleet.SyncFailed && (o.Reason == fleet.ReasonOwnedByOther || o.Reason == fleet.ReasonNotAdopted) {
			return o.String() + " " + o.Message + "; "
		}
	}
	return ""
}
