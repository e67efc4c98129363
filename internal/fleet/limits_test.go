package fleet_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// covers: T10 (the rule that server and agent share)
func TestLimitsAllow(t *testing.T) {
	t.Parallel()
	configMap := fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	deployment := fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "a"}
	gizmo := fleet.ObjectRef{Group: "example.com", Version: "v1", Kind: "Gizmo", Namespace: "shop", Name: "a"}
	role := fleet.ObjectRef{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "a"}
	cases := map[string]struct {
		reason     string
		limits     fleet.Limits
		ref        fleet.ObjectRef
		namespaced bool
		want       bool
	}{
		"Nothing":         {"no limit allows everything", fleet.Limits{}, role, false, true},
		"Namespace":       {"the namespace is listed", fleet.Limits{Namespaces: []string{"blog", "shop"}}, configMap, true, true},
		"OtherNamespace":  {"the namespace is not listed", fleet.Limits{Namespaces: []string{"blog"}}, configMap, true, false},
		"ClusterScoped":   {"an empty namespace is not in the list", fleet.Limits{Namespaces: []string{"shop"}}, role, false, false},
		"StrayNamespace":  {"the cluster decides whether the kind has namespaces, not the manifest", fleet.Limits{Namespaces: []string{"shop"}}, configMap, false, false},
		"NoNamespace":     {"an empty namespace is none", fleet.Limits{Namespaces: []string{"shop"}}, fleet.ObjectRef{Kind: "ConfigMap"}, true, false},
		"CoreKind":        {"a kind without group is of the core group", fleet.Limits{Kinds: []string{"ConfigMap"}}, configMap, true, true},
		"KindOfGroup":     {"kind and group match", fleet.Limits{Kinds: []string{"ConfigMap", "Deployment.apps"}}, deployment, true, true},
		"SameKind":        {"the core group has no Deployment", fleet.Limits{Kinds: []string{"Deployment"}}, deployment, true, false},
		"OtherKind":       {"another kind of the group", fleet.Limits{Kinds: []string{"StatefulSet.apps"}}, deployment, true, false},
		"WholeGroup":      {"every kind of the group", fleet.Limits{Kinds: []string{"*.example.com"}}, gizmo, true, true},
		"SubGroup":        {"just that group", fleet.Limits{Kinds: []string{"*.com"}}, gizmo, true, false},
		"GroupNotCore":    {"the core group is another one", fleet.Limits{Kinds: []string{"*.example.com"}}, configMap, true, false},
		"Everything":      {"a star is every kind", fleet.Limits{Kinds: []string{"*"}}, role, false, true},
		"KindNotCase":     {"kinds are written as Kubernetes writes them", fleet.Limits{Kinds: []string{"configmap"}}, configMap, true, false},
		"BothMustMatch":   {"the kind is allowed, the namespace is not", fleet.Limits{Namespaces: []string{"blog"}, Kinds: []string{"*"}}, configMap, true, false},
		"BothDo":          {"kind and namespace are allowed", fleet.Limits{Namespaces: []string{"shop"}, Kinds: []string{"ConfigMap"}}, configMap, true, true},
		"PartOfANameOnly": {"names are compared whole", fleet.Limits{Namespaces: []string{"sho"}}, configMap, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.limits.Allows(tc.ref, tc.namespaced); got != tc.want {
				t.Errorf("Allows() = %t: %s", got, tc.reason)
			}
			if why := tc.limits.Refusal(tc.ref, tc.namespaced); (why == "") != tc.want {
				t.Errorf("Refusal() = %q: %s", why, tc.reason)
			}
		})
	}
}

// covers: T6
func TestLimitsAreChecked(t *testing.T) {
	t.Parallel()
	good := fleet.Limits{Namespaces: []string{"shop"}, Kinds: []string{"*", "*.example.com", "ConfigMap", "Deployment.apps", "Role.rbac.authorization.k8s.io"}}
	if err := good.Check("limits"); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	for reason, bad := range map[string]fleet.Limits{
		"a namespace has no pattern":          {Namespaces: []string{"team-*"}},
		"an empty namespace is none":          {Namespaces: []string{""}},
		"a kind starts with a capital letter": {Kinds: []string{"configmaps"}},
		"a kind has no pattern":               {Kinds: []string{"Config*"}},
		"a group is not empty":                {Kinds: []string{"ConfigMap."}},
		"an empty kind is none":               {Kinds: []string{""}},
		"memory is bounded":                   {Kinds: slices.Repeat([]string{"*"}, fleet.MaxLimits+1)},
		"a name is bounded":                   {Kinds: []string{"K." + strings.Repeat("x", 300)}},
	} {
		var invalid *fleet.InvalidError
		if err := bad.Check("limits"); !errors.As(err, &invalid) {
			t.Errorf("Check(%.3v) = %v, want an InvalidError: %s", bad, err, reason)
		}
	}
}
