package health

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Annotations with which an object says in CEL how its health is read, where the generic rules do
// not fit a custom kind. The variable object is the live object. What is neither failed nor current
// is in progress, and so is an object that lacks a field that is asked for.
const (
	AnnotationCurrent = "kedge.dev/health-current"
	AnnotationFailed  = "kedge.dev/health-failed"
)

const (
	// An expression comes from Git and is run for every change of the object: neither its length nor
	// its work may hurt the agent.
	maxExpression = 4 << 10
	maxCost       = 100_000
)

// environment is built once, when the first object asks: most agents never need it.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("object", cel.DynType), ext.Strings(), cel.OptionalTypes())
})

// byExpression returns the health of an object that says how it is read; ok is false when it does not.
func byExpression(obj *unstructured.Unstructured) (h fleet.Health, message string, ok bool) {
	annotations := obj.GetAnnotations()
	current, hasCurrent := annotations[AnnotationCurrent]
	failed, hasFailed := annotations[AnnotationFailed]
	if !hasCurrent && !hasFailed {
		return "", "", false
	}
	if hasFailed {
		is, err := holds(failed, obj)
		if err != nil {
			return fleet.HealthUnknown, fmt.Sprintf("annotation %s: %v", AnnotationFailed, err), true
		}
		if is {
			return fleet.HealthFailed, "is failed: " + failed, true
		}
	}
	if !hasCurrent {
		return "", "", false // not failed; the generic rules say the rest
	}
	is, err := holds(current, obj)
	switch {
	case err != nil:
		return fleet.HealthUnknown, fmt.Sprintf("annotation %s: %v", AnnotationCurrent, err), true
	case is:
		return fleet.HealthCurrent, "", true
	}
	return fleet.HealthInProgress, "is not yet: " + current, true
}

// holds evaluates an expression. It fails when the expression makes no sense or costs too much; a
// field that is not there yet makes it false.
func holds(expression string, obj *unstructured.Unstructured) (bool, error) {
	if len(expression) > maxExpression {
		return false, fmt.Errorf("an expression has at most %d characters", maxExpression)
	}
	program, err := compiled.get(expression)
	if err != nil {
		return false, err
	}
	value, details, err := program.Eval(map[string]any{"object": obj.Object})
	if cost := details.ActualCost(); cost != nil && *cost > maxCost {
		return false, fmt.Errorf("evaluating %q costs too much", expression)
	}
	if err != nil {
		return false, nil //nolint:nilerr // a status that is not written yet lacks the fields that are asked for
	}
	is, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("%q is not true or false but %v", expression, value.Value())
	}
	return is, nil
}
