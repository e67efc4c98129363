package install_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/internal/testkit"
)

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func withTunnel(o *install.Options) {
	namespaced(o)
	o.Agent.Namespaces, o.Agent.Tunnel, o.TenantName, o.AgentNamespace = []string{"dude"}, true, "acme", "tunnelled"
}

func TestTunnelAccountMayOnlyImpersonate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*install.Options){
		"namespaced": withTunnel,
		"cluster":    func(o *install.Options) { o.Agent.Tunnel, o.TenantName, o.AgentNamespace = true, "acme", "tunnelled" },
		"argocd":     func(o *install.Options) { withArgoCD(o); withTunnel(o) },
	} {
		roles := map[string][]any{}
		bound := map[string][]string{} // roles by account
		for _, u := range decode(t, options(change)) {
			key := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
			switch u.GetKind() {
			case "Role", "ClusterRole":
				roles[key], _, _ = unstructured.NestedSlice(u.Object, "rules")
			case "RoleBinding", "ClusterRoleBinding":
				role, _, _ := unstructured.NestedString(u.Object, "roleRef", "name")
				subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
				for _, s := range subjects {
					account := s.(map[string]any)["name"].(string)
					bound[account] = append(bound[account], u.GetKind()[:len(u.GetKind())-len("Binding")]+" "+u.GetNamespace()+"/"+role)
				}
			}
		}
		if got := bound["kedge-tunnel"]; !slices.Equal(got, []string{"ClusterRole /tunnelled:tunnel"}) {
			t.Fatalf("%s: the account has the roles %v", name, got)
		}
		verbs := []any{"impersonate"}
		want := []any{
			map[string]any{"apiGroups": []any{""}, "resources": []any{"users"}, "verbs": verbs},
			map[string]any{"apiGroups": []any{""}, "resources": []any{"groups"}, "verbs": verbs, "resourceNames": []any{
				"kedge:tenant:acme", "kedge:tenant:acme:viewer", "kedge:tenant:acme:deployer", "kedge:tenant:acme:admin",
			}},
			map[string]any{"apiGroups": []any{"authentication.k8s.io"}, "verbs": verbs, "resources": []any{
				"userextras/kedge.dev/agent-id", "userextras/kedge.dev/tenant-id", "userextras/kedge.dev/token-id",
			}},
		}
		equal(t, name+": permissions of the tunnel", roles["ClusterRole /tunnelled:tunnel"], want)
		equal(t, name+": permission for tokens", roles["Role tunnelled/kedge-tunnel"], []any{map[string]any{
			"apiGroups": []any{""}, "resources": []any{"serviceaccounts/token"}, "verbs": []any{"create"}, "resourceNames": []any{"kedge-tunnel"},
		}})
		if !slices.Contains(bound["kedge-agent"], "Role tunnelled/kedge-tunnel") {
			t.Errorf("%s: the agent cannot create tokens of the tunnel; it has %v", name, bound["kedge-agent"])
		}
	}
}

func TestWithoutTunnelNothingMentionsIt(t *testing.T) {
	t.Parallel()
	for _, u := range decode(t, options(namespaced)) {
		if u.GetName() == "kedge-tunnel" {
			t.Errorf("the manifest contains %s %s", u.GetKind(), u.GetName())
		}
	}
}

// identity is a caller, as an agent sends it.
func identity(user string, groups []string, extra map[string][]string) rest.ImpersonationConfig {
	return rest.ImpersonationConfig{UserName: user, Groups: groups, Extra: extra}
}

// whoAmI returns the identity that the API server sees.
func whoAmI(t *testing.T, config *rest.Config) (authenticationv1.UserInfo, error) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.Resource(schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}).
		Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	var out authenticationv1.SelfSubjectReview
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Status.UserInfo, nil
}

// The account of the tunnel can do nothing but impersonate the callers of its tenant.
func TestTunnelAccountOnARealCluster(t *testing.T) {
	t.Parallel()
	cluster := testkit.StartCluster(t)
	cluster.Kubectl(t, "create", "namespace", "dude")
	manifest, err := install.Manifest(options(withTunnel))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Apply(t, string(manifest))
	cluster.Kubectl(t, "create", "clusterrolebinding", "acme-viewers", "--clusterrole=view", "--group=kedge:tenant:acme:viewer")
	as := func(account string, who rest.ImpersonationConfig) *rest.Config {
		config := cluster.ServiceAccountConfig(t, "tunnelled", account)
		config.Impersonate = who
		return config
	}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	list := func(config *rest.Config) error {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Resource(configMaps).Namespace("dude").List(t.Context(), metav1.ListOptions{})
		return err
	}
	extra := map[string][]string{fleet.AccessExtraTenant: {"ten-1"}, fleet.AccessExtraAgent: {"agt-1"}, fleet.AccessExtraToken: {"tok-1"}}
	groups := []string{"kedge:tenant:acme", "kedge:tenant:acme:viewer"}
	alice := identity("kedge:person:alice@example.com", groups, extra)
	seen, err := whoAmI(t, as("kedge-tunnel", alice))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for key, value := range seen.Extra {
		got[key] = value
	}
	if seen.Username != alice.UserName || !slices.Equal(seen.Groups, append(slices.Clone(groups), "system:authenticated")) || !maps.EqualFunc(got, extra, slices.Equal) {
		t.Errorf("the API server sees %+v", seen)
	}
	if err := list(as("kedge-tunnel", alice)); err != nil {
		t.Errorf("a caller whose group may view cannot: %v", err)
	}
	refused := map[string]error{
		"the account itself":          list(as("kedge-tunnel", rest.ImpersonationConfig{})),
		"a group without permissions": list(as("kedge-tunnel", identity("kedge:person:alice@example.com", groups[:1], extra))),
	}
	for reason, who := range map[string]rest.ImpersonationConfig{
		"a group of the system":   identity("kedge:person:alice", []string{"system:masters"}, nil),
		"another tenant":          identity("kedge:person:alice", []string{"kedge:tenant:globex"}, nil),
		"a role of another one":   identity("kedge:person:alice", []string{"kedge:tenant:globex:viewer"}, nil),
		"another extra field":     identity("kedge:person:alice", groups, map[string][]string{"scopes": {"x"}}),
		"a ServiceAccount":        identity("system:serviceaccount:tunnelled:kedge-agent", nil, nil),
		"a UID":                   {UserName: "kedge:person:alice", UID: "1"},
		"a node, by its group":    identity("system:node:a", []string{"system:nodes"}, nil),
		"unauthenticated callers": identity("kedge:person:alice", []string{"system:unauthenticated"}, nil),
	} {
		_, refused[reason] = whoAmI(t, as("kedge-tunnel", who))
	}
	_, refused["the account of the agent impersonates"] = whoAmI(t, as("kedge-agent", alice))
	for reason, err := range refused {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want 403", reason, err)
		}
	}

	checkTunnelTokens(t, as("kedge-agent", rest.ImpersonationConfig{}))

	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster.Kubectl(t, "delete", "-f", file, "--wait=true")
	if left := cluster.Kubectl(t, "get", "serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,namespaces", "-A", "-l", install.LabelInstall+"=prod", "-o", "name"); left != "" {
		t.Errorf("uninstalling left %s", left)
	}
}

// checkTunnelTokens checks that the agent creates tokens of the account of the tunnel, and of no other one.
func checkTunnelTokens(t *testing.T, agent *rest.Config) {
	t.Helper()
	token := func(account string) error {
		client, err := dynamic.NewForConfig(agent)
		if err != nil {
			t.Fatal(err)
		}
		request := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": account, "namespace": "tunnelled"},
		}}
		_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace("tunnelled").
			Create(t.Context(), request, metav1.CreateOptions{}, "token")
		return err
	}
	if err := token("kedge-tunnel"); err != nil {
		t.Errorf("the agent creates a token of the tunnel: %v", err)
	}
	if err := token("kedge-agent"); !apierrors.IsForbidden(err) {
		t.Errorf("the agent creates a token of itself: got %v, want 403", err)
	}
}
