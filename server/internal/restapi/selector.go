package restapi

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxRequirements bounds the terms of one label selector, and maxSelectorValues the values of all terms.
const (
	maxRequirements   = 32
	maxSelectorValues = 256
)

// LabelSelector is the query parameter of listings that filter by labels.
type LabelSelector struct {
	LabelSelector string `query:"labelSelector" maxLength:"4096" doc:"A label selector in the syntax of Kubernetes, such as 'team=web,tier in (db,cache),!legacy'."`
}

// operators are the operators that have an equivalent in the store.
var operators = map[selection.Operator]fleet.LabelOperator{
	selection.Equals: fleet.LabelIn, selection.DoubleEquals: fleet.LabelIn, selection.In: fleet.LabelIn,
	selection.NotEquals: fleet.LabelNotIn, selection.NotIn: fleet.LabelNotIn,
	selection.Exists: fleet.LabelExists, selection.DoesNotExist: fleet.LabelDoesNotExist,
}

// labelSelector parses a label selector. An empty text selects everything.
func labelSelector(in LabelSelector) (fleet.LabelSelector, error) {
	if in.LabelSelector == "" {
		return nil, nil
	}
	parsed, err := labels.Parse(in.LabelSelector)
	if err != nil {
		return nil, fleet.Invalid("labelSelector", "%v", err)
	}
	requirements, _ := parsed.Requirements()
	if len(requirements) > maxRequirements {
		return nil, fleet.Invalid("labelSelector", "has %d requirements; at most %d are allowed", len(requirements), maxRequirements)
	}
	var out fleet.LabelSelector
	values := 0
	for _, r := range requirements {
		operator, ok := operators[r.Operator()]
		if !ok {
			return nil, fleet.Invalid("labelSelector", "the operator %q is not supported: use =, !=, in, notin, KEY or !KEY", r.Operator())
		}
		out = append(out, fleet.LabelRequirement{Key: r.Key(), Operator: operator, Values: r.ValuesUnsorted()})
		values += len(r.ValuesUnsorted())
	}
	if values > maxSelectorValues {
		return nil, fleet.Invalid("labelSelector", "has %d values; at most %d are allowed", values, maxSelectorValues)
	}
	return out, nil
}
