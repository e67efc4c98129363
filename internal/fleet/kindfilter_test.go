package fleet_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// covers: A1 (kind filters in their order, with *)
func TestKindFilterOrder(t *testing.T) {
	t.Parallel()
	kind := func(name string) fleet.ObjectRef { return fleet.ParseObjectKind(name) }
	filter := func(include, exclude string) fleet.KindFilter {
		return fleet.NewKindFilter(strings.Fields(include), strings.Fields(exclude))
	}
	cases := []struct {
		reason string
		filter fleet.KindFilter
		object string
		rule   string // that refuses it; "" allows it
	}{
		{"no filter allows a kind", filter("", ""), "Secret", ""},
		{"no filter allows a custom kind", filter("", ""), "Gizmo.example.com", ""},
		{"no filter allows a cluster-scoped kind", filter("", ""), "ClusterRole.rbac.authorization.k8s.io", ""},
		{"built-in exclusion of the core group", filter("", ""), "Event", "Event"},
		{"built-in exclusion of a group", filter("", ""), "Event.events.k8s.io", "*.events.k8s.io"},
		{"built-in exclusion of what controllers write", filter("", ""), "EndpointSlice.discovery.k8s.io", "EndpointSlice.discovery.k8s.io"},
		{"built-in exclusion of what is not stored", filter("", ""), "TokenReview.authentication.k8s.io", "*.authentication.k8s.io"},
		{"roles are in another group than reviews of permissions", filter("", ""), "Role.rbac.authorization.k8s.io", ""},
		{"an inclusion comes before the built-in exclusions", filter("Lease.coordination.k8s.io", ""), "Lease.coordination.k8s.io", ""},
		{"an inclusion lifts only what it names", filter("Lease.coordination.k8s.io", ""), "Event", "Event"},
		{"an inclusion of everything lifts the built-in exclusions", filter("*", ""), "Event", ""},
		{"an inclusion of a group", filter("*.events.k8s.io", ""), "Event.events.k8s.io", ""},
		{"an inclusion alone excludes nothing", filter("ConfigMap", ""), "Secret", ""},
		{"an exclusion", filter("", "Secret"), "Secret", "Secret"},
		{"an exclusion of the core group is not of others", filter("", "Ingress"), "Ingress.networking.k8s.io", ""},
		{"an exclusion of every group", filter("", "Ingress.*"), "Ingress.networking.k8s.io", "Ingress.*"},
		{"every group has the core group", filter("", "Event.* Secret.*"), "Secret", "Secret.*"},
		{"an exclusion of a group", filter("", "*.apps"), "Deployment.apps", "*.apps"},
		{"a group is compared whole", filter("", "*.k8s.io"), "Ingress.networking.k8s.io", ""},
		{"a kind is compared whole", filter("", "Deploy.apps"), "Deployment.apps", ""},
		{"an inclusion comes before an exclusion", filter("Deployment.apps", "*.apps"), "Deployment.apps", ""},
		{"an inclusion of a group before an exclusion of a kind", filter("*.apps", "Deployment.apps"), "Deployment.apps", ""},
		{"the rest of an excluded group", filter("Deployment.apps", "*.apps"), "StatefulSet.apps", "*.apps"},
		{"only some kinds: one of them", filter("ConfigMap Deployment.apps", "*"), "ConfigMap", ""},
		{"only some kinds: another one", filter("ConfigMap Deployment.apps", "*"), "Service", "*"},
		{"the built-in exclusions come before the exclusions", filter("", "*"), "Node", "built-in rule Node"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			got := c.filter.Refusal(kind(c.object))
			if (got == "") != (c.rule == "") || !strings.HasSuffix(got, c.rule) {
				t.Errorf("Refusal(%s) = %q, want the rule %q", c.object, got, c.rule)
			}
			if err := c.filter.Check("kindFilter"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExclusionOfLeavesOutTheBuiltinOnes(t *testing.T) {
	t.Parallel()
	f := fleet.NewKindFilter([]string{"Role.*"}, []string{"*.rbac.authorization.k8s.io"})
	for kind, want := range map[string]string{"Event": "", "Role.rbac.authorization.k8s.io": "", "ClusterRole.rbac.authorization.k8s.io": "*.rbac.authorization.k8s.io"} {
		if got := f.ExclusionOf(fleet.ParseObjectKind(kind + " a/b")); got != want {
			t.Errorf("ExclusionOf(%s) = %q, want %q", kind, got, want)
		}
	}
}

func TestKindFilterIsChecked(t *testing.T) {
	t.Parallel()
	for reason, bad := range map[string]fleet.KindFilter{
		"kinds begin with a capital":      {Include: []string{"configmap"}},
		"plurals are no kinds":            {Exclude: []string{"deployments.apps"}},
		"a * is a whole kind":             {Exclude: []string{"Config*"}},
		"a * is a whole group":            {Exclude: []string{"*.*.k8s.io"}},
		"the group comes after the kind":  {Exclude: []string{"apps/Deployment"}},
		"nothing":                         {Include: []string{""}},
		"a name is no kind":               {Exclude: []string{"Secret shop/a"}},
		"the length of a rule is bounded": {Exclude: []string{"A" + strings.Repeat("a", 300)}},
		"the number of rules is bounded":  {Include: slices.Repeat([]string{"*"}, fleet.MaxKindRules+1)},
	} {
		var invalid *fleet.InvalidError
		if err := bad.Check("kindFilter"); !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, "kindFilter.") {
			t.Errorf("%s: Check() = %v, want an error that names the list", reason, err)
		}
	}
	if err := (fleet.KindFilter{Exclude: fleet.BuiltinKindExclusions()}).Check("builtin"); err != nil {
		t.Error(err)
	}
}

func TestKindFilterHasOneForm(t *testing.T) {
	t.Parallel()
	a := fleet.NewKindFilter([]string{"B", "A", "B"}, []string{"*"})
	b := fleet.NewKindFilter([]string{"A", "B"}, []string{"*", "*"})
	if !a.Equal(b) || a.IsZero() || !fleet.NewKindFilter(nil, []string{}).IsZero() || a.Equal(fleet.KindFilter{}) {
		t.Errorf("%v and %v are not the same", a, b)
	}
}
