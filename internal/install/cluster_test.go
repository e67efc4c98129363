package install_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: A18, C4 (a real API server accepts the manifest; permissions of the agent; uninstalling keeps
// application objects), C6 (two agents in one cluster)
func TestInstallationOnARealCluster(t *testing.T) {
	t.Parallel()
	cluster := testkit.StartCluster(t)
	cluster.Kubectl(t, "create", "namespace", "dude")
	cluster.Kubectl(t, "create", "namespace", "naww")
	manifest := func(change func(*install.Options)) string {
		text, err := install.Manifest(options(change))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	limited := func(o *install.Options) {
		namespaced(o)
		o.Agent.Name, o.Agent.Namespaces = "limited", []string{"dude"}
	}
	cluster.Apply(t, manifest(nil))
	cluster.Apply(t, manifest(limited))

	const wide, narrow = "kedge-agent-prod", "kedge-agent-limited"
	// The namespace admits only restricted pods, so that the pod starts only if it is one.
	cluster.Kubectl(t, "wait", "--for=condition=Available", "deployment/kedge-agent", "--namespace="+wide, "--timeout=60s")
	cases := []struct{ agent, verb, what, namespace, want string }{
		{wide, "create", "namespaces", "", "yes"},
		{wide, "delete", "deployments.apps", "naww", "yes"},
		{narrow, "create", "deployments.apps", "dude", "yes"},
		{narrow, "watch", "configmaps", "dude", "yes"},
		{narrow, "create", "deployments.apps", "naww", "no"},
		{narrow, "create", "namespaces", "", "no"},
		{narrow, "list", "configmaps", "", "no"},
		{narrow, "create", "configmaps", narrow, "yes"},
		{narrow, "update", "leases.coordination.k8s.io/kedge-agent", narrow, "yes"},
		{narrow, "watch", "leases.coordination.k8s.io/kedge-agent", narrow, "yes"},
		{narrow, "create", "leases.coordination.k8s.io", narrow, "yes"},
		{narrow, "update", "leases.coordination.k8s.io/another", narrow, "no"},
		{narrow, "delete", "leases.coordination.k8s.io/kedge-agent", narrow, "no"},
		{narrow, "patch", "deployments.apps", narrow, "no"},
		{narrow, "patch", "roles.rbac.authorization.k8s.io", narrow, "no"},
		{narrow, "get", "secrets", narrow, "no"},
		{narrow, "get", "secrets/kedge-agent-token", narrow, "yes"},
		{narrow, "patch", "secrets/kedge-agent-token", narrow, "yes"},
		{narrow, "delete", "secrets/kedge-agent-token", narrow, "no"},
		{narrow, "list", "secrets", narrow, "no"},
		{narrow, "create", "secrets", narrow, "yes"},
		{narrow, "get", "secrets/kedge-offline-0", narrow, "yes"},
		{narrow, "patch", "secrets/kedge-offline-31", narrow, "yes"},
		{narrow, "get", "secrets/kedge-offline-32", narrow, "no"},
		{narrow, "get", "secrets/kedge-agent-ca", narrow, "no"},
		{narrow, "patch", "secrets/kedge-agent-ca", narrow, "no"},
		// Deployments are applied as ServiceAccounts of the managed namespaces, and of no others.
		{narrow, "impersonate", "serviceaccounts/deployer", "dude", "yes"},
		{narrow, "impersonate", "serviceaccounts/deployer", "naww", "no"},
		{narrow, "impersonate", "serviceaccounts/kedge-agent", narrow, "no"},
		{narrow, "impersonate", "users", "", "no"},
		{wide, "impersonate", "serviceaccounts/deployer", "naww", "yes"},
		{wide, "patch", "secrets/kedge-agent-token", wide, "yes"},
		{wide, "get", "secrets/kedge-offline-0", wide, "yes"},
		{wide, "update", "leases.coordination.k8s.io/kedge-agent", wide, "yes"},
	}
	for _, c := range cases {
		args := []string{"auth", "can-i", c.verb, c.what, "--as=system:serviceaccount:" + c.agent + ":kedge-agent"}
		if c.namespace == "" {
			args = append(args, "--all-namespaces")
		} else {
			args = append(args, "--namespace="+c.namespace)
		}
		out, _ := cluster.TryKubectl(t, args...) // it fails when the answer is no
		if got := strings.Fields(out + " ?")[0]; got != c.want {
			t.Errorf("may %s %s %s in %q? %s, want %s", c.agent, c.verb, c.what, c.namespace, out, c.want)
		}
	}

	cluster.Kubectl(t, "create", "configmap", "app", "--namespace=dude")
	file := filepath.Join(t.TempDir(), "agent.yaml")
	uninstall := manifest(func(o *install.Options) { limited(o); o.WithSecret = false })
	if err := os.WriteFile(file, []byte(uninstall), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster.Kubectl(t, "delete", "-f", file, "--wait=true")
	if left := cluster.Kubectl(t, "get", "all,secrets,roles,rolebindings,namespaces", "-A", "-l", install.LabelInstall+"=limited", "-o", "name"); left != "" {
		t.Errorf("uninstalling left %s", left)
	}
	cluster.Kubectl(t, "get", "configmap", "app", "--namespace=dude")
	cluster.Kubectl(t, "get", "deployment", "kedge-agent", "--namespace="+wide)
}
