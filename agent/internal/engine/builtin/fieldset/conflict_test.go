package fieldset

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func conflictWith(messages ...string) error {
	var causes []metav1.StatusCause
	for _, m := range messages {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas", Message: m})
	}
	return apierrors.NewApplyConflict(causes, "conflict")
}

func TestFieldConflicts(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason  string
		err     error
		manager string // "" when there is no conflict of fields
		yields  bool
	}{
		{"a person", conflictWith(`conflict with "kubectl-edit" using apps/v1 at 2026-01-01T00:00:00Z`), "kubectl-edit", false},
		{"another tool that applies", conflictWith(`conflict with "helm"`), "helm", false},
		{"an autoscaler", conflictWith(`conflict with "kube-controller-manager" with subresource "scale" using apps/v1`), "kube-controller-manager", true},
		{"KEDA", conflictWith(`conflict with "keda" with subresource "scale" using apps/v1`), "keda", true},
		{"a script that scales", conflictWith(`conflict with "our-script" with subresource "scale" using apps/v1`), "our-script", false},
		{"a person who scales", conflictWith(`conflict with "kubectl" with subresource "scale" using apps/v1`), "kubectl", false},
		{"a message of another form is shown as it is", conflictWith(`something else`), "something else", false},
		{"a UID that does not fit", apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("uid mismatch")), "", false},
		{"no answer of an API server", errors.New("broken"), "", false},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			conflicts := ConflictsOf(c.err)
			if (len(conflicts) == 0) != (c.manager == "") || len(conflicts) > 0 && conflicts[0].Manager != c.manager {
				t.Errorf("got %v, want the manager %q", conflicts, c.manager)
			}
			if got := HasAutoscaler(conflicts); got != c.yields {
				t.Errorf("yields is %t, want %t", got, c.yields)
			}
		})
	}
}

func TestConflictErrorNamesAFew(t *testing.T) {
	t.Parallel()
	err := &ConflictError{Conflicts: ConflictsOf(conflictWith(`conflict with "a"`, `conflict with "b"`, `conflict with "c"`, `conflict with "d"`, `conflict with "e"`))}
	if text := err.Error(); !strings.Contains(text, `"c"`) || strings.Contains(text, `"d"`) || !strings.Contains(text, "and 2 more") {
		t.Errorf("says %q", text)
	}
}

func TestAllOurs(t *testing.T) {
	t.Parallel()
	set := fieldsOf(t, `{"f:spec":{"f:replicas":{}}}`)
	if !AllIn([]Conflict{{Field: ".spec.replicas"}}, set) {
		t.Error("a field that was applied before is taken for somebody else's")
	}
	if AllIn([]Conflict{{Field: ".spec.replicas"}, {Field: ".spec.paused"}}, set) {
		t.Error("a field that was never applied is taken for ours")
	}
}

func TestConflictsCompleteTheAppliedFields(t *testing.T) {
	t.Parallel()
	parse := func(text string) Set {
		set, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	applied := parse(`{"f:data":{"f:a":{},"f:b":{}},"f:spec":{"f:list":{"k:{\"name\":\"x\"}":{".":{},"f:image":{}}}}}`).Names().Hash()
	owned := parse(`{"f:data":{"f:b":{}},"f:spec":{"f:list":{"k:{\"name\":\"x\"}":{".":{}}}}}`)
	const image = `.spec.list[name="x"].image`
	tests := map[string]struct {
		owned   Set
		fields  []string
		applied string
		want    bool
	}{
		"others changed all missing fields":       {owned, []string{image, ".data.a"}, applied, true},
		"a field is named twice":                  {owned, []string{".data.a", image, ".data.a"}, applied, true},
		"one conflict is about a new field":       {owned, []string{".data.a", image, ".data.new"}, applied, false},
		"all conflicts are about new fields":      {owned, []string{".data.new"}, applied, false},
		"another missing field has no conflict":   {owned, []string{".data.a"}, applied, false},
		"nothing is known of the last apply":      {owned, []string{".data.a", image}, "", false},
		"the object has no field of Kedge at all": {Set{}, []string{".data.a", image}, applied, false},
	}
	for name, tt := range tests {
		var conflicts []Conflict
		for _, field := range tt.fields {
			conflicts = append(conflicts, Conflict{Field: field})
		}
		if got := CompletedBy(tt.owned, conflicts, tt.applied); got != tt.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
