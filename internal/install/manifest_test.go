package install_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func options(change func(*install.Options)) install.Options {
	o := install.Options{
		Agent: fleet.Agent{
			ID: "agt-1", Name: "prod", Scope: fleet.ScopeCluster, CreatedAt: time.Unix(0, 0),
		},
		TenantName:    "default",
		ServerAddress: "grpcs://kedge.example.com:8443",
		Token:         "kedge-agent-secret",
		CAPEM:         []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
		Image:         "registry.example.com/kedge-agent:v1",
		WithSecret:    true,
	}
	if change != nil {
		change(&o)
	}
	return o
}

func namespaced(o *install.Options) {
	o.Agent.Scope, o.Agent.Namespaces = fleet.ScopeNamespaced, []string{"dude", "team-a"}
}

// covers: C4 (the manifest in both variants, and the one for upgrade and uninstall)
func TestManifestMatchesGoldenFile(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*install.Options){
		"cluster":            nil,
		"namespaced":         namespaced,
		"without-secret":     func(o *install.Options) { o.WithSecret, o.Token = false, "" },
		"argocd":             withArgoCD,
		"argocd-credentials": func(o *install.Options) { withArgoCD(o); o.Agent.DeliverGitCredentials = true },
		"tunnel":             func(o *install.Options) { o.Agent.Tunnel, o.TenantName = true, "acme" },
		"tunnel-namespaced":  func(o *install.Options) { namespaced(o); o.Agent.Tunnel = true },
		"replicas":           func(o *install.Options) { o.Replicas = 2 },
		"admission":          func(o *install.Options) { o.Admission = &strict },
		"outside":            func(o *install.Options) { o.WithoutDeployment, o.Image = true, "" },
		"plaintext-ignores":  func(o *install.Options) { o.ServerAddress = "ws://127.0.0.1:8080" },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := install.Manifest(options(change))
			if err != nil {
				t.Fatal(err)
			}
			testkit.Golden(t, name+".yaml", string(got))
		})
	}
}

func decode(t *testing.T, o install.Options) []unstructured.Unstructured {
	t.Helper()
	text, err := install.Manifest(o)
	if err != nil {
		t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var out []unstructured.Unstructured
	for {
		var u unstructured.Unstructured
		if err := decoder.Decode(&u); err != nil {
			return out
		}
		out = append(out, u)
	}
}

// covers: C4 (uninstalling deletes no application object; limited to listed namespaces)
func TestManifestContainsOnlyTheAgentsOwnObjects(t *testing.T) {
	t.Parallel()
	for reason, change := range map[string]func(*install.Options){"cluster-wide": nil, "limited": namespaced, "with Argo CD": withArgoCD} {
		for _, u := range decode(t, options(change)) {
			if u.GetLabels()[install.LabelInstall] != "prod" {
				t.Errorf("%s: %s %s has no label %s", reason, u.GetKind(), u.GetName(), install.LabelInstall)
			}
			if u.GetKind() == "Namespace" && u.GetName() != "kedge-agent-prod" {
				t.Errorf("%s: deleting the manifest would delete namespace %s", reason, u.GetName())
			}
			foreign := u.GetNamespace() != "" && u.GetNamespace() != "kedge-agent-prod"
			if foreign && !slices.Contains([]string{"Role", "RoleBinding"}, u.GetKind()) {
				t.Errorf("%s: %s %s/%s is outside of the agent's namespace", reason, u.GetKind(), u.GetNamespace(), u.GetName())
			}
		}
	}
}

// An agent that has Argo CD apply gets no permission for the objects of deployments, and none for Secrets of Argo CD.
// covers: E1
func TestAgentWithArgoCDGetsOnlyItsResources(t *testing.T) {
	t.Parallel()
	for _, u := range decode(t, options(withArgoCD)) {
		if strings.HasPrefix(u.GetKind(), "ClusterRole") {
			t.Errorf("the manifest contains a %s", u.GetKind())
		}
		if u.GetKind() != "Role" || u.GetNamespace() == "kedge-agent-prod" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(u.Object, "rules")
		if u.GetNamespace() == "kube-system" {
			if names, _, _ := unstructured.NestedStringSlice(rules[0].(map[string]any), "resourceNames"); len(rules) != 1 || !slices.Equal(names, []string{"kube-system"}) {
				t.Errorf("a Role in kube-system has the rules %v", rules)
			}
			continue
		}
		if u.GetNamespace() != "argocd" || len(rules) != 1 {
			t.Fatalf("a Role in namespace %q has the rules %v", u.GetNamespace(), rules)
		}
		groups, _, _ := unstructured.NestedStringSlice(rules[0].(map[string]any), "apiGroups")
		resources, _, _ := unstructured.NestedStringSlice(rules[0].(map[string]any), "resources")
		if !slices.Equal(groups, []string{"argoproj.io"}) || !slices.Equal(resources, []string{"applications", "appprojects"}) {
			t.Errorf("the agent may use %v of %v", resources, groups)
		}
	}
}

func withArgoCD(o *install.Options) { o.Agent.EngineNamespace = "argocd" }

func TestLimitedAgentGetsNoClusterRole(t *testing.T) {
	t.Parallel()
	for _, u := range decode(t, options(namespaced)) {
		if strings.HasPrefix(u.GetKind(), "ClusterRole") {
			t.Errorf("the namespaced variant contains a %s", u.GetKind())
		}
		if u.GetKind() != "Role" || u.GetNamespace() != "kedge-agent-prod" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(u.Object, "rules")
		for _, r := range rules {
			resources, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "resources")
			names, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "resourceNames")
			verbs, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "verbs")
			for _, resource := range resources {
				ownSecrets := resource == "secrets" && (slices.Equal(names, []string{"kedge-agent-token"}) || slices.Equal(names, agentnames.SlotNames()))
				ownLease := resource == "leases" && slices.Equal(names, []string{"kedge-agent"})
				createOnly := slices.Equal(verbs, []string{"create"}) // which RBAC cannot restrict by name
				if resource != "configmaps" && !ownLease && !ownSecrets && !createOnly {
					t.Errorf("the agent may %v %s %v in its own namespace", verbs, resource, names)
				}
				if slices.Contains(verbs, "delete") && resource != "configmaps" || slices.Contains(verbs, "list") && resource == "secrets" {
					t.Errorf("the agent may %v %s %v, which it does not need", verbs, resource, names)
				}
			}
		}
	}
}

// covers: C6 (two agents in one cluster)
func TestTwoAgentsShareNoObject(t *testing.T) {
	t.Parallel()
	pairs := map[string]func(*install.Options){
		"another name in the same tenant": func(o *install.Options) { o.Agent.Name = "staging" },
		"the same name in another tenant": func(o *install.Options) { o.TenantName = "team-b" },
		"limited to the same namespaces":  func(o *install.Options) { namespaced(o); o.Agent.Name = "limited" },
		"long names with a common prefix": func(o *install.Options) { o.Agent.Name = strings.Repeat("a", 60) + "-b" },
	}
	key := func(u unstructured.Unstructured) string {
		return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
	}
	for reason, change := range pairs {
		base := options(nil)
		if strings.HasPrefix(reason, "long") {
			base.Agent.Name = strings.Repeat("a", 60) + "-c"
		}
		if strings.HasPrefix(reason, "limited") {
			namespaced(&base)
		}
		taken := map[string]bool{}
		for _, u := range decode(t, base) {
			taken[key(u)] = true
		}
		for _, u := range decode(t, options(change)) {
			if taken[key(u)] {
				t.Errorf("%s: both contain %s", reason, key(u))
			}
			if len(u.GetNamespace()) > 63 {
				t.Errorf("%s: namespace %s is too long", reason, u.GetNamespace())
			}
		}
	}
}

func TestManifestRefusesMistakes(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason, field string
		change        func(*install.Options)
	}{
		{"no scheme", "serverAddress", func(o *install.Options) { o.ServerAddress = "kedge.example.com:8443" }},
		{"a scheme that agents do not support", "serverAddress", func(o *install.Options) { o.ServerAddress = "https://kedge.example.com" }},
		{"no host", "serverAddress", func(o *install.Options) { o.ServerAddress = "grpcs://" }},
		{"a token in the address would be logged", "serverAddress", func(o *install.Options) { o.ServerAddress = "wss://u:p@host" }},
		{"no image", "image", func(o *install.Options) { o.Image = "" }},
		{"the version of a build is not a tag", "image", func(o *install.Options) { o.Image = "kedge-agent:dev+725f8c873264" }},
		{"two words", "image", func(o *install.Options) { o.Image = "a b" }},
		{"too many", "replicas", func(o *install.Options) { o.Replicas = 10 }},
		{"negative", "replicas", func(o *install.Options) { o.Replicas = -1 }},
		{"the agent would manage itself", "namespaces", func(o *install.Options) {
			namespaced(o)
			o.Agent.Namespaces = append(o.Agent.Namespaces, "kedge-agent-prod")
		}},
	}
	for _, c := range cases {
		var invalid *fleet.InvalidError
		if _, err := install.Manifest(options(c.change)); !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%s: got %v, want an error for %s", c.reason, err, c.field)
		}
	}
}
