package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/agent/internal/health"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Some fields cannot be changed once an object exists, and API servers say so in a few words of their
// own. Whoever else refuses an update, an admission policy, a webhook or a rule of a definition, means
// that the object shall not change, and must not get it deleted for that. Before an object is deleted
// to be created anew the API server is asked whether it would accept the new one, so that none is lost
// for a manifest that nobody accepts.

// immutableError says that a manifest changes a field that cannot be changed.
type immutableError struct {
	field, detail string
	remedy        string
}

func (e *immutableError) Error() string {
	return fmt.Sprintf("%s cannot be changed once the object exists (%s); %s", e.field, e.detail, e.remedy)
}

// notGone says that an object was deleted to be created anew and is not gone yet.
type notGone struct {
	field      string
	finalizers []string
}

func (e *notGone) Error() string { return health.Leaving(e.finalizers) + ", to be created anew" }

// replace decides about an update that was refused as invalid. With the policy for it, a field that
// cannot be changed has the object deleted; it reports whether to go on by creating it.
func (c *cluster) replace(ctx context.Context, j *applyJob, out *result, refused error) (again bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	immutable := immutableField(j.ref, refused)
	switch {
	case immutable == nil:
		return false, refused
	case manifest.IsProtected(j.ref), j.ref.Group == "" && j.ref.Kind == "PersistentVolume":
		immutable.remedy = "a " + j.ref.Kind + " is never replaced: delete it by hand if that is meant, or give the new one another name"
		return false, immutable
	case !j.policy.Replace:
		immutable.remedy = "set replace: true to have it deleted and created anew, or give the new one another name"
		return false, immutable
	}
	if trial := c.create(ctx, *j); trial != nil {
		immutable.remedy = "it is not replaced, because a new one would be refused as well: " + trial.Error()
		return false, immutable
	}
	return c.clear(ctx, j, out, immutable)
}

// clear deletes the live object, if it is still the one that was refused and nothing keeps it.
func (c *cluster) clear(ctx context.Context, j *applyJob, out *result, immutable *immutableError) (again bool, _ error) {
	live, err := c.peek(ctx, j.mapping, j.ref)
	if apierrors.IsNotFound(err) {
		j.known = false
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if string(live.GetUID()) != j.uid || live.GetLabels()[LabelTarget] != string(j.owner.target) {
		j.known = false
		return true, immutable
	}
	why, err := c.kept(ctx, j, live)
	switch {
	case err != nil:
		return false, err
	case why != "":
		immutable.remedy = "it is not replaced, because " + why
		return false, immutable
	case j.dryRun:
		out.replaced = immutable.field
		return false, nil
	}
	removed, err := c.delete(ctx, removeJob{ref: j.ref, propagation: j.policy.Propagation}, j.mapping, live)
	switch {
	case apierrors.IsConflict(err):
		return true, err // changed since: it is judged again
	case err != nil:
		return false, fmt.Errorf("deleting it to create it anew: %w", err)
	case removed.outcome == outcomeTerminating:
		return false, &notGone{field: immutable.field, finalizers: live.GetFinalizers()}
	}
	j.known, j.uid, j.live, out.replaced = true, "", nil, immutable.field
	return true, immutable
}

// kept returns why a live object must not be deleted to be created anew, or "".
func (c *cluster) kept(ctx context.Context, j *applyJob, live *metav1.PartialObjectMetadata) (string, error) {
	if why := cmp.Or(keptByLive(live.GetAnnotations(), false), keptByManifest(j.keepMark, false)); why != "" {
		return why, nil
	}
	if j.ref.Group == "apps" && j.ref.Kind == "StatefulSet" {
		// If it changes after this the deletion fails: that is bound to what was read before.
		whole, err := c.read(ctx, j.mapping, j.ref)
		if err != nil {
			return "", err
		}
		const policy = "persistentVolumeClaimRetentionPolicy"
		if then, _, _ := unstructured.NestedString(whole.Object, "spec", policy, "whenDeleted"); then == "Delete" {
			return "its PersistentVolumeClaims would be deleted with it: set " + policy + ".whenDeleted to Retain first", nil
		}
	}
	if j.hold == nil {
		return "", nil
	}
	return j.hold(), nil
}

// create has the API server say whether it would accept the manifest for a new object, under a name
// of its choice. Nothing is created.
func (c *cluster) create(ctx context.Context, j applyJob) error {
	body := j.owner.body(j.manifest.Object(), j.ref, "", j.yield)
	unstructured.RemoveNestedField(body.Object, "metadata", "name")
	body.SetGenerateName(j.ref.Name + "-")
	_, err := c.resource(j.mapping, j.ref).Create(ctx, body, metav1.CreateOptions{
		FieldManager: fieldset.FieldManager, DryRun: []string{metav1.DryRunAll},
	})
	return err
}

// immutableWords are what API servers say of a field that cannot be changed.
var immutableWords = []*regexp.Regexp{
	regexp.MustCompile(`^` + validation.FieldImmutableErrorMsg + `\b`),
	regexp.MustCompile(`^may not (be changed|change once set)\b`),
	regexp.MustCompile(`^(pod )?updates (to .* are forbidden|may not change fields other than)\b`),
	regexp.MustCompile(`^cannot change roleRef\b`),
	regexp.MustCompile(`^spec\S* is immutable after creation\b`), // of a PersistentVolume and of a claim
}

// immutableField returns the first field that a refusal names, if all that it says is that fields
// cannot be changed, and nil otherwise. Only kinds of Kubernetes itself are judged: for others the
// words are those of whoever wrote their definition, and may speak of anything.
func immutableField(ref fleet.ObjectRef, refused error) *immutableError {
	var status apierrors.APIStatus
	if _, known := manifest.IsClusterScoped(ref); !known || !errors.As(refused, &status) {
		return nil
	}
	said := status.Status()
	if said.Details == nil || len(said.Details.Causes) == 0 || strings.HasPrefix(said.Message, "admission webhook ") {
		return nil
	}
	for _, cause := range said.Details.Causes {
		detail := detailOf(cause)
		if cause.Field == "" || !slices.ContainsFunc(immutableWords, func(words *regexp.Regexp) bool { return words.MatchString(detail) }) {
			return nil
		}
	}
	const limit = 200
	first := said.Details.Causes[0]
	detail := detailOf(first)
	if len(detail) > limit {
		detail = strings.ToValidUTF8(detail[:limit], "") + "…"
	}
	return &immutableError{field: first.Field, detail: detail}
}

// detailOf returns why a field is refused, without its value: that is long, and may be secret.
func detailOf(cause metav1.StatusCause) string {
	detail, forbidden := strings.CutPrefix(cause.Message, "Forbidden: ")
	if !forbidden {
		detail = detail[strings.LastIndex(": "+detail, ": "):]
	}
	detail, _, _ = strings.Cut(detail, "\n") // what would change follows, of a Pod
	return detail
}
