package fleet

import "slices"

// LabelOperator is the relation of a label to the values of a requirement, as in a Kubernetes label selector.
type LabelOperator string

// The operators of label selectors.
const (
	LabelIn           LabelOperator = "In"
	LabelNotIn        LabelOperator = "NotIn"
	LabelExists       LabelOperator = "Exists"
	LabelDoesNotExist LabelOperator = "DoesNotExist"
)

// LabelRequirement is one term of a label selector. Values is empty for Exists and DoesNotExist.
type LabelRequirement struct {
	Key      string
	Operator LabelOperator
	Values   []string
}

// LabelSelector matches labels that meet all of its requirements. An empty selector matches everything.
type LabelSelector []LabelRequirement

// Matches reports whether labels meet every requirement. NotIn also matches labels without the key.
func (s LabelSelector) Matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(r LabelRequirement) bool { return !r.matches(labels) })
}

func (r LabelRequirement) matches(labels map[string]string) bool {
	value, present := labels[r.Key]
	switch r.Operator {
	case LabelIn:
		return present && slices.Contains(r.Values, value)
	case LabelNotIn:
		return !present || !slices.Contains(r.Values, value)
	case LabelExists:
		return present
	case LabelDoesNotExist:
		return !present
	}
	return false
}
