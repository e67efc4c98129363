package kube

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// covers: A13
func TestImmutableFieldIsFoundByTheWordsOfTheAPIServerOnly(t *testing.T) {
	t.Parallel()
	job := fleet.ObjectRef{Group: "batch", Version: "v1", Kind: "Job", Name: "a"}
	cause := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Field: field, Message: message}
	}
	const long = "Invalid value: core.PodTemplateSpec{Name: x}: field is immutable"
	tests := map[string]struct {
		ref     fleet.ObjectRef
		message string
		causes  []metav1.StatusCause
		want    string // the field and why; "" when it is not immutable
	}{
		"of a Job":           {job, "", []metav1.StatusCause{cause("spec.template", long)}, "spec.template field is immutable"},
		"several of them":    {job, "", []metav1.StatusCause{cause("spec.template", long), cause("spec.selector", long)}, "spec.template field is immutable"},
		"of a Secret":        {job, "", []metav1.StatusCause{cause("data", "Forbidden: field is immutable when `immutable` is set")}, "data field is immutable when `immutable` is set"},
		"of a Service":       {job, "", []metav1.StatusCause{cause("spec.clusterIPs[0]", `Invalid value: ["10.0.0.1"]: may not change once set`)}, "spec.clusterIPs[0] may not change once set"},
		"of a PriorityClass": {job, "", []metav1.StatusCause{cause("value", "Forbidden: may not be changed in an update.")}, "value may not be changed in an update."},
		"of a StorageClass":  {job, "", []metav1.StatusCause{cause("parameters", "Forbidden: updates to parameters are forbidden.")}, "parameters updates to parameters are forbidden."},
		"of a RoleBinding":   {job, "", []metav1.StatusCause{cause("roleRef", `Invalid value: {"kind":"Role"}: cannot change roleRef`)}, "roleRef cannot change roleRef"},
		"of a Pod, whose values follow": {job, "", []metav1.StatusCause{cause("spec", "Forbidden: pod updates may not change fields other than `image`\n{Env: \"secret\"}")},
			"spec pod updates may not change fields other than `image`"},
		"something else is wrong too":      {job, "", []metav1.StatusCause{cause("spec.template", long), cause("spec.x", "Required value")}, ""},
		"another mistake":                  {job, "", []metav1.StatusCause{cause("spec.x", "Invalid value: 1: must be greater than 2")}, ""},
		"the words are in the value":       {job, "", []metav1.StatusCause{cause("spec.x", `Invalid value: "x: field is immutable": must be a name`)}, ""},
		"an admission policy: no field":    {job, "", []metav1.StatusCause{cause("", "field is immutable")}, ""},
		"no cause":                         {job, "field is immutable", nil, ""},
		"a webhook":                        {job, `admission webhook "x" denied the request: no`, []metav1.StatusCause{cause("spec.template", long)}, ""},
		"a kind that somebody has defined": {fleet.ObjectRef{Group: "example.com", Kind: "Widget"}, "", []metav1.StatusCause{cause("spec.size", "Invalid value: 1: field is immutable")}, ""},
	}
	for reason, tt := range tests {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			err := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: tt.message, Details: &metav1.StatusDetails{Causes: tt.causes}}}
			got := ""
			if immutable := immutableField(tt.ref, err); immutable != nil {
				got = immutable.field + " " + immutable.detail
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if immutableField(job, errors.New("field is immutable")) != nil {
		t.Error("what no API server has said is taken for an immutable field")
	}
}
