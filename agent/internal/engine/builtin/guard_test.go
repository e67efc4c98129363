package builtin

import (
	"strings"
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
		want       string // "" when it is allowed
	}{
		{"cluster scope may touch any namespace", everywhere, in("dude"), true, ""},
		{"cluster scope may touch cluster-scoped kinds", everywhere, namespace("dude"), false, ""},
		{"a namespaced object needs a namespace", everywhere, in(""), true, "names no namespace"},
		{"its own namespace is taboo", everywhere, in("kedge"), true, "installation"},
		{"the Namespace that it lives in is taboo", everywhere, namespace("kedge"), false, "installation"},
		{"a listed namespace", limited, in("dude"), true, ""},
		{"another namespace", limited, in("naww"), true, "limited"},
		{"a cluster-scoped kind", limited, namespace("dude"), false, "cluster-scoped"},
		{"its own namespace, even when listed", settings{agent: "a", scope: fleet.ScopeNamespaced, namespaces: []string{"kedge"}}, in("kedge"), true, "installation"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			got := c.settings.refuse(c.ref, kube.Mapping{Namespaced: c.namespaced}, "kedge")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
