package fleet_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestLabelSelectorMatchesAsInKubernetes(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"region": "eu", "tier": ""}
	cases := []struct {
		reason      string
		requirement fleet.LabelRequirement
		want        bool
	}{
		{"the value is listed", fleet.LabelRequirement{Key: "region", Operator: fleet.LabelIn, Values: []string{"us", "eu"}}, true},
		{"the value is not listed", fleet.LabelRequirement{Key: "region", Operator: fleet.LabelIn, Values: []string{"us"}}, false},
		{"an absent key has no value", fleet.LabelRequirement{Key: "zone", Operator: fleet.LabelIn, Values: []string{""}}, false},
		{"an empty value is a value", fleet.LabelRequirement{Key: "tier", Operator: fleet.LabelIn, Values: []string{""}}, true},
		{"the value is excluded", fleet.LabelRequirement{Key: "region", Operator: fleet.LabelNotIn, Values: []string{"eu"}}, false},
		{"an absent key is not excluded", fleet.LabelRequirement{Key: "zone", Operator: fleet.LabelNotIn, Values: []string{"eu"}}, true},
		{"the key exists", fleet.LabelRequirement{Key: "tier", Operator: fleet.LabelExists}, true},
		{"the key does not exist", fleet.LabelRequirement{Key: "zone", Operator: fleet.LabelExists}, false},
		{"an absent key", fleet.LabelRequirement{Key: "zone", Operator: fleet.LabelDoesNotExist}, true},
		{"a present key", fleet.LabelRequirement{Key: "tier", Operator: fleet.LabelDoesNotExist}, false},
		{"an unknown operator matches nothing", fleet.LabelRequirement{Key: "tier", Operator: "Like"}, false},
	}
	for _, c := range cases {
		if got := (fleet.LabelSelector{c.requirement}).Matches(labels); got != c.want {
			t.Errorf("%s: got %v", c.reason, got)
		}
	}
	if !(fleet.LabelSelector{}).Matches(nil) {
		t.Error("the empty selector does not match everything")
	}
	both := fleet.LabelSelector{{Key: "region", Operator: fleet.LabelExists}, {Key: "tier", Operator: fleet.LabelDoesNotExist}}
	if both.Matches(labels) {
		t.Error("a selector matches although one requirement is not met")
	}
}
