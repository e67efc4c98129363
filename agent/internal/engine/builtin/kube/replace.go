package kube

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

// Some fields are immutable once an object exists. API servers report that in a few fixed phrases. An admission policy,
// a webhook or a rule of a CustomResourceDefinition that refuses an update protects the object, so such a refusal never
// deletes it. Before an object is deleted and recreated, a dry run asks the API server whether it accepts the new one:
// an invalid manifest must not delete the object.

// ImmutableError is the error of an apply that changes an immutable field.
type ImmutableError struct {
	field, detail string
	remedy        string
}

func (e *ImmutableError) Error() string {
	return fmt.Sprintf("%s cannot be changed once the object exists (%s); %s", e.field, e.detail, e.remedy)
}

// NotGoneError means: an object was deleted to be recreated, and still exists.
type NotGoneError struct {
	Field      string
	finalizers []string
}

func (e *NotGoneError) Error() string { return health.Leaving(e.finalizers) + ", to be recreated" }

// replace handles an update that was refused as invalid. If the field is immutable and the policy allows it, replace
// deletes the object. It reports whether to create the object now.
func (c *Client) replace(ctx context.Context, j *ApplyRequest, out *ApplyResult, refused error) (again bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.Request)
	defer cancel()
	immutable := immutableField(j.Ref, refused)
	switch {
	case immutable == nil:
		return false, refused
	case manifest.IsProtected(j.Ref), j.Ref.Group == "" && j.Ref.Kind == "PersistentVolume":
		immutable.remedy = "a " + j.Ref.Kind + " is never replaced: delete it by hand if that is meant, or give the new one another name"
		return false, immutable
	case !j.Policy.Replace:
		immutable.remedy = "set replace: true to have it deleted and recreated, or give the new one another name"
		return false, immutable
	}
	if trial := c.create(ctx, *j); trial != nil {
		immutable.remedy = "it is not replaced, because a new one would be refused as well: " + trial.Error()
		return false, immutable
	}
	return c.clear(ctx, j, out, immutable)
}

// clear deletes the live object, unless it changed since or something keeps it.
func (c *Client) clear(ctx context.Context, j *ApplyRequest, out *ApplyResult, immutable *ImmutableError) (again bool, _ error) {
	live, err := c.peek(ctx, j.Mapping, j.Ref)
	if apierrors.IsNotFound(err) {
		j.Known = false
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if string(live.GetUID()) != j.UID || live.GetLabels()[LabelTarget] != string(j.Owner.Target) {
		j.Known = false
		return true, immutable
	}
	why, err := c.kept(ctx, j, live)
	switch {
	case err != nil:
		return false, err
	case !why.IsZero():
		immutable.remedy = "it is not replaced, because " + why.Message
		return false, immutable
	case j.DryRun:
		out.Replaced = immutable.field
		return false, nil
	}
	removed, err := c.delete(ctx, RemoveRequest{Ref: j.Ref, Propagation: j.Policy.Propagation}, j.Mapping, live)
	switch {
	case apierrors.IsConflict(err):
		return true, err // it changed since: read it again
	case err != nil:
		return false, fmt.Errorf("deleting it to recreate it: %w", err)
	case removed.Outcome == OutcomeTerminating:
		return false, &NotGoneError{Field: immutable.field, finalizers: live.GetFinalizers()}
	}
	j.Known, j.UID, j.live, out.Replaced = true, "", nil, immutable.field
	return true, immutable
}

// kept returns why a live object must not be deleted and recreated; zero when it may.
func (c *Client) kept(ctx context.Context, j *ApplyRequest, live *metav1.PartialObjectMetadata) (fleet.Cause, error) {
	if why := cmp.Or(KeptByLive(live.GetAnnotations(), false), KeptByManifest(j.KeepAnnotation, false)); !why.IsZero() {
		return why, nil
	}
	if j.Ref.Group == "apps" && j.Ref.Kind == "StatefulSet" {
		// If it changes after this the deletion fails: that is bound to what was read before.
		whole, err := c.Read(ctx, j.Mapping, j.Ref)
		if err != nil {
			return fleet.Cause{}, err
		}
		const policy = "persistentVolumeClaimRetentionPolicy"
		if then, _, _ := unstructured.NestedString(whole.Object, "spec", policy, "whenDeleted"); then == "Delete" {
			return fleet.Cause{Reason: fleet.ReasonNotEmpty, Message: "its PersistentVolumeClaims would be deleted with it: set " + policy + ".whenDeleted to Retain first"}, nil
		}
	}
	if j.KeepCause == nil {
		return fleet.Cause{}, nil
	}
	return j.KeepCause(), nil
}

// create asks the API server by a dry run whether it accepts the manifest for a new object, under a generated name.
func (c *Client) create(ctx context.Context, j ApplyRequest) error {
	body := j.Owner.body(j.Manifest.Object(), j.Ref, "", j.YieldReplicas)
	unstructured.RemoveNestedField(body.Object, "metadata", "name")
	body.SetGenerateName(j.Ref.Name + "-")
	_, err := c.resource(j.Mapping, j.Ref).Create(ctx, body, metav1.CreateOptions{
		FieldManager: fieldset.FieldManager, DryRun: []string{metav1.DryRunAll},
	})
	return err
}

// immutableWords are the phrases of API servers for an immutable field.
var immutableWords = []*regexp.Regexp{
	regexp.MustCompile(`^` + validation.FieldImmutableErrorMsg + `\b`),
	regexp.MustCompile(`^may not (be changed|change once set)\b`),
	regexp.MustCompile(`^(pod )?updates (to .* are forbidden|may not change fields other than)\b`),
	regexp.MustCompile(`^cannot change roleRef\b`),
	regexp.MustCompile(`^spec\S* is immutable after creation\b`), // of a PersistentVolume and of a claim
}

// immutableField returns the first field of a refusal whose only causes are immutable fields, and nil otherwise. It knows
// the kinds of Kubernetes itself: the phrases of other kinds come from the authors of their definitions.
func immutableField(ref fleet.ObjectRef, refused error) *ImmutableError {
	var status apierrors.APIStatus
	if _, known := manifest.IsClusterScoped(ref); !known || !errors.As(refused, &status) {
		return nil
	}
	said := status.Status()
	if said.Details == nil || len(said.Details.Causes) == 0 || deniedByWebhook(said) {
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
	return &ImmutableError{field: first.Field, detail: detail}
}

// detailOf returns why a field is refused, without its value, which may be long or secret.
func detailOf(cause metav1.StatusCause) string {
	detail, forbidden := strings.CutPrefix(cause.Message, "Forbidden: ")
	if !forbidden {
		detail = detail[strings.LastIndex(": "+detail, ": "):]
	}
	detail, _, _ = strings.Cut(detail, "\n") // what would change follows, of a Pod
	return detail
}
