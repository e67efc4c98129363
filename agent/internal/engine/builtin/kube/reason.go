package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// ReasonOf classifies the error of a request. It is the only place that does. An error that belongs to no class has the
// reason general, which depends on what the request was for. API servers do not mark some answers except by their wording:
// those of admission and of the authorizer.
func ReasonOf(err error, general fleet.Reason) fleet.Reason {
	var refused *Refusal
	var conflict *fieldset.ConflictError
	var immutable *ImmutableError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &refused):
		return refused.Cause.Reason
	case errors.As(err, &conflict):
		return fleet.ReasonFieldConflict
	case errors.As(err, &immutable):
		return fleet.ReasonImmutableField
	case errors.Is(err, ErrUnknownKind):
		return fleet.ReasonKindNotFound
	case errors.As(err, &status):
		return reasonOfAnswer(err, status.Status(), general)
	case isNetworkError(err):
		return fleet.ReasonClusterUnavailable
	}
	return general
}

// reasonOfAnswer classifies an answer of the API server.
func reasonOfAnswer(err error, answer metav1.Status, general fleet.Reason) fleet.Reason {
	switch {
	case isWebhookFailure(answer):
		return fleet.ReasonWebhookFailed
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fleet.ReasonNamespaceTerminating
	case isAdmissionDenial(answer):
		return fleet.ReasonAdmissionDenied
	case MissingNamespace(err) != "":
		return fleet.ReasonNamespaceNotFound
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fleet.ReasonForbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return fleet.ReasonInvalid
	case apierrors.IsNotFound(err):
		return fleet.ReasonKindNotFound // an apply creates the object, so it is its resource that is not found
	case isUnavailable(answer), apierrors.IsTimeout(err):
		return fleet.ReasonClusterUnavailable
	}
	return general
}

// MissingNamespace returns the namespace whose absence made a request fail; "" when that was not the cause.
func MissingNamespace(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Kind != "namespaces" {
		return ""
	}
	return status.Status().Details.Name
}

// webhookFailure is how an API server reports a webhook that it could not call.
var webhookFailure = regexp.MustCompile(`\bfailed calling webhook "`)

func isWebhookFailure(answer metav1.Status) bool {
	return answer.Code == http.StatusInternalServerError && webhookFailure.MatchString(answer.Message)
}

// userForbidden is how an API server begins the detail of a denial by its authorizer, or by its check that users only grant
// permissions that they have. Admission denies everything else that is forbidden, such as by a quota or by pod security.
var userForbidden = regexp.MustCompile(` is forbidden: [Uu]ser "`)

// isAdmissionDenial reports whether a webhook, a policy or a plugin of the API server has denied a request.
func isAdmissionDenial(answer metav1.Status) bool {
	if deniedByWebhook(answer) || deniedByPolicy(answer) {
		return true
	}
	return answer.Reason == metav1.StatusReasonForbidden &&
		strings.Contains(answer.Message, " is forbidden: ") && !userForbidden.MatchString(answer.Message)
}

// deniedByWebhook reports whether an admission webhook has denied a request. Webhooks choose code and reason themselves.
func deniedByWebhook(answer metav1.Status) bool {
	return strings.HasPrefix(answer.Message, "admission webhook ")
}

// deniedByPolicy reports whether a ValidatingAdmissionPolicy has denied a request. Policies choose code and reason themselves.
func deniedByPolicy(answer metav1.Status) bool {
	return answer.Details != nil && slices.ContainsFunc(answer.Details.Causes, func(c metav1.StatusCause) bool {
		return strings.HasPrefix(c.Message, "ValidatingAdmissionPolicy '")
	})
}

// isUnavailable reports whether an API server, or a proxy before it, cannot answer at present.
func isUnavailable(answer metav1.Status) bool {
	switch answer.Code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// isNetworkError reports whether a request has got no answer.
func isNetworkError(err error) bool {
	var network net.Error
	var request *url.Error
	return errors.As(err, &network) || errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
