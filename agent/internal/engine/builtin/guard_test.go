package builtin

import (
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	in := func(namespace string) fleet.ObjectRef {
		return fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: namespace, Name: "a"}
	}
	namespace := func(name string) fleet.ObjectRef {
		return fleet.ObjectRef{Version: "v1", Kind: "Namespace", Name: name}
	}
	everywhere := settings{agent: "a", scope: fleet.ScopeCluster}
	limited := settings{agent: "a", scope: fleet.ScopeNamespaced, namespaces: []string{"dude"}}
	cases := []struct {
		reason     string
		settings   settings
		ref        fleet.ObjectRef
		namespaced bool
		want       fleet.Reason // "" when it is allowed
	}{
		{"cluster scope may touch any namespace", everywhere, in("dude"), true, ""},
		{"cluster scope may touch cluster-scoped kinds", everywhere, namespace("dude"), false, ""},
		{"a namespaced object needs a namespace", everywhere, in(""), true, fleet.ReasonNamespaceRequired},
		{"its own namespace is refused", everywhere, in("kedge"), true, fleet.ReasonOwnInstallation},
		{"the Namespace that it lives in is refused", everywhere, namespace("kedge"), false, fleet.ReasonOwnInstallation},
		{"a listed namespace", limited, in("dude"), true, ""},
		{"another namespace", limited, in("naww"), true, fleet.ReasonOutsideScope},
		{"a cluster-scoped kind", limited, namespace("dude"), false, fleet.ReasonOutsideScope},
		{"its own namespace, even when listed", settings{agent: "a", scope: fleet.ScopeNamespaced, namespaces: []string{"kedge"}}, in("kedge"), true, fleet.ReasonOwnInstallation},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			got := c.settings.refuse(c.ref, kube.Mapping{Namespaced: c.namespaced}, "kedge")
			if got.Reason != c.want || got.IsZero() != (c.want == "") {
				t.Errorf("got %+v, want %q", got, c.want)
			}
		})
	}
}
