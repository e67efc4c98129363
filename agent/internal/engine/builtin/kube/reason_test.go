package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestReasonOf(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "configmaps"}
	forbidden := func(detail string) *apierrors.StatusError {
		return apierrors.NewForbidden(resource, "a", errors.New(detail))
	}
	answer := func(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
	}
	terminating := forbidden("unable to create new content in namespace x because it is being terminated")
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	policy := forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")
	policy.ErrStatus.Reason, policy.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	policy.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"}}
	const general = fleet.ReasonApplyFailed
	for name, c := range map[string]struct {
		err  error
		want fleet.Reason
	}{
		"a refusal of Kedge":                     {&Refusal{fleet.Cause{Reason: fleet.ReasonOwnerPolicy, Message: "no"}}, fleet.ReasonOwnerPolicy},
		"an object that exists":                  {NotAdopted(), fleet.ReasonNotAdopted},
		"an object of another target":            {owned("tgt", "belongs to %s", "x"), fleet.ReasonOwnedByOther},
		"a conflict of field managers":           {&fieldset.ConflictError{}, fleet.ReasonFieldConflict},
		"an immutable field":                     {&ImmutableError{}, fleet.ReasonImmutableField},
		"an unknown kind, wrapped":               {fmt.Errorf("asking: %w", ErrUnknownKind), fleet.ReasonKindNotFound},
		"a resource that is not served any more": {apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", resource, "a", "", 0, true), fleet.ReasonKindNotFound},
		"a missing namespace":                    {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x"), fleet.ReasonNamespaceNotFound},
		"a namespace that is being deleted":      {terminating, fleet.ReasonNamespaceTerminating},
		"RBAC":                                   {forbidden(`User "system:serviceaccount:a:b" cannot patch resource "configmaps" in API group "" in the namespace "x"`), fleet.ReasonForbidden},
		"RBAC escalation":                        {forbidden(`user "a" (groups=["b"]) is attempting to grant RBAC permissions not currently held`), fleet.ReasonForbidden},
		"a proxy that forbids":                   {answer(http.StatusForbidden, metav1.StatusReasonForbidden, "no"), fleet.ReasonForbidden},
		"no credentials":                         {apierrors.NewUnauthorized("no"), fleet.ReasonForbidden},
		"a quota":                                {forbidden("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"), fleet.ReasonAdmissionDenied},
		"pod security":                           {forbidden(`violates PodSecurity "restricted:latest": privileged`), fleet.ReasonAdmissionDenied},
		"an admission policy":                    {policy, fleet.ReasonAdmissionDenied},
		"an admission webhook":                   {answer(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "w" denied the request: no`), fleet.ReasonAdmissionDenied},
		"an admission webhook with its own code": {answer(http.StatusTeapot, "", `admission webhook "w" denied the request: no`), fleet.ReasonAdmissionDenied},
		"a webhook without an answer":            {apierrors.NewInternalError(errors.New(`failed calling webhook "w": failed to call webhook: EOF`)), fleet.ReasonWebhookFailed},
		"a value that is invalid":                {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", nil), fleet.ReasonInvalid},
		"a type that is wrong":                   {apierrors.NewBadRequest("cannot unmarshal"), fleet.ReasonInvalid},
		"an object that is too large":            {apierrors.NewRequestEntityTooLargeError("limit"), fleet.ReasonInvalid},
		"an overloaded API server":               {apierrors.NewTooManyRequests("later", 1), fleet.ReasonClusterUnavailable},
		"an API server that stops":               {apierrors.NewServiceUnavailable("stopping"), fleet.ReasonClusterUnavailable},
		"a timeout of the API server":            {apierrors.NewTimeoutError("slow", 1), fleet.ReasonClusterUnavailable},
		"a timeout":                              {fmt.Errorf("patching: %w", context.DeadlineExceeded), fleet.ReasonClusterUnavailable},
		"a connection that breaks":               {io.ErrUnexpectedEOF, fleet.ReasonClusterUnavailable},
		"a connection that is refused":           {&url.Error{Op: "Patch", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, fleet.ReasonClusterUnavailable},
		"the check of what is in it":             {&ContentsError{forbidden(`User "a" cannot list resource "x"`)}, fleet.ReasonForbidden},
		"an internal error":                      {apierrors.NewInternalError(errors.New("boom")), general},
		"an object that keeps changing":          {apierrors.NewConflict(resource, "a", errors.New("changed")), general},
		"anything else":                          {errors.New("boom"), general},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ReasonOf(c.err, general); got != c.want {
				t.Errorf("%v is %s, want %s", c.err, got, c.want)
			}
		})
	}
}
