package kubeapi

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// maxMessage limits the messages of conditions.
const maxMessage = 2048

// refusal is an error that another attempt does not change, as a condition.
type refusal struct{ cause fleet.Cause }

func (r *refusal) Error() string { return r.cause.Message }

func refuse(reason fleet.Reason, message string) error {
	return &refusal{fleet.Cause{Reason: reason, Message: message}}
}

// refused returns the cause of an error that another attempt does not change.
func refused(err error) (fleet.Cause, bool) {
	var known *refusal
	var owner *control.OwnerError
	var kubeconfig *control.KubeconfigError
	var quota *control.QuotaError
	var conflict *fleet.ConflictError
	switch {
	case errors.As(err, &known):
		return known.cause, true
	case errors.As(err, &owner):
		return fleet.Cause{Reason: owner.Reason, Message: owner.Message}, true
	case errors.As(err, &kubeconfig):
		return fleet.Cause{Reason: kubeconfig.Reason, Message: kubeconfig.Error()}, true
	case errors.As(err, &quota):
		return fleet.Cause{Reason: fleet.ReasonQuotaExceeded, Message: err.Error()}, true
	case len(fleet.Problems(err)) > 0:
		return fleet.Cause{Reason: fleet.ReasonInvalidSpec, Message: err.Error()}, true
	case errors.As(err, &conflict):
		return fleet.Cause{Reason: fleet.ReasonInUse, Message: conflict.Error()}, true
	}
	return fleet.Cause{}, false
}

// set replaces a condition. Its transition time changes with its status only.
func set(conditions *[]metav1.Condition, generation int64, kind string, status metav1.ConditionStatus, cause fleet.Cause) {
	setAt(conditions, generation, kind, status, cause, time.Time{})
}

// setAt is set for a condition whose last transition the server knows; zero if it does not.
func setAt(conditions *[]metav1.Condition, generation int64, kind string, status metav1.ConditionStatus, cause fleet.Cause, at time.Time) {
	message := cause.Message
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: string(cmp.Or(cause.Reason, fleet.Reason(kind))), Message: message, ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(at.Truncate(time.Second)),
	})
}
