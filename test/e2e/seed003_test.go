package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// restrictedRBAC has the permissions from the walk-through of pull-based deployments: ConfigMaps everywhere,
// everything in the agent's own namespace and in dude, nothing in naww.
const restrictedRBAC = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: AGENT-write-cm, labels: {kedge.dev/install: AGENT}}
rules: [{resources: [configmaps], apiGroups: [""], verbs: [create, update, delete, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: AGENT-write-binding-cm, labels: {kedge.dev/install: AGENT}}
roleRef: {name: AGENT-write-cm, kind: ClusterRole, apiGroup: rbac.authorization.k8s.io}
subjects: [{name: ACCOUNT, kind: ServiceAccount, namespace: HOME}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: AGENT-read-cm, labels: {kedge.dev/install: AGENT}}
rules: [{resources: [configmaps], apiGroups: [""], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: AGENT-read-binding-cm, labels: {kedge.dev/install: AGENT}}
roleRef: {name: AGENT-read-cm, kind: ClusterRole, apiGroup: rbac.authorization.k8s.io}
subjects: [{name: ACCOUNT, kind: ServiceAccount, namespace: HOME}]
---
`

// everythingIn grants all of one namespace, as a pair of Roles for writing and reading.
const everythingIn = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: SPACE, name: AGENT-write}
rules: [{resources: ["*"], apiGroups: ["*"], verbs: [create, update, delete, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: SPACE, name: AGENT-write-binding}
roleRef: {name: AGENT-write, kind: Role, apiGroup: rbac.authorization.k8s.io}
subjects: [{name: ACCOUNT, kind: ServiceAccount, namespace: HOME}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: SPACE, name: AGENT-read}
rules: [{resources: ["*"], apiGroups: ["*"], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: SPACE, name: AGENT-read-binding}
roleRef: {name: AGENT-read, kind: Role, apiGroup: rbac.authorization.k8s.io}
subjects: [{name: ACCOUNT, kind: ServiceAccount, namespace: HOME}]
---
`

// covers: A2
func TestDudeDeploysAndNawwIsRefusedUntilItsRoleIsGranted(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	dude, naww := cluster.Namespace(t), cluster.Namespace(t)
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "seed-003"})
	installed := strings.Fields(cluster.Kubectl(t, "get", "deployments", "-A", "-l", "kedge.dev/install=seed-003",
		"-o", "jsonpath={.items[0].metadata.namespace} {.items[0].spec.template.spec.serviceAccountName}"))
	home, account := installed[0], installed[1]
	// The cluster's owner replaces the generous RBAC of the manifest by that of the walk-through.
	cluster.Kubectl(t, "delete", "clusterroles,clusterrolebindings", "-l", "kedge.dev/install=seed-003")
	cluster.Kubectl(t, "-n", home, "delete", "roles,rolebindings", "--all")
	grant := func(text, space string) {
		cluster.Apply(t, strings.NewReplacer("AGENT", "seed-003", "ACCOUNT", account, "HOME", home, "SPACE", space).Replace(text))
	}
	grant(restrictedRBAC, "")
	grant(everythingIn, home)
	grant(everythingIn, dude)
	a.run(t)
	a.awaitConnected(t, s)

	manifest := func(space string) string {
		return strings.ReplaceAll(fmt.Sprintf(webApp, 1), "name: web\nspec", "name: nginx\n  namespace: "+space+"\nspec")
	}
	commit := repo.push(t, map[string]string{"manifests/dude.yaml": manifest(dude), "manifests/naww.yaml": manifest(naww)})
	s.deploy(t, apiv1.CreateDeployment{Name: "walk", Source: apiv1.Source{RepoURL: repo.url, Globs: []string{"/manifests/*.{yaml,yml,json}"}}})
	d := s.awaitDeployment(t, "walk", func(d apiv1.Deployment) error {
		if d.Sync != "Failed" || len(d.Targets) != 1 || len(d.Targets[0].Objects) != 2 {
			return fmt.Errorf("not yet refused")
		}
		for _, o := range d.Targets[0].Objects {
			if o.Namespace == dude && (o.Sync != "Synced" || o.Health != "Current") {
				return fmt.Errorf("dude is %s/%s", o.Sync, o.Health)
			}
		}
		return nil
	})
	if !strings.Contains(d.Message, naww) || !strings.Contains(d.Message, "nginx") || !strings.Contains(d.Message, "forbidden") {
		t.Errorf("the reason does not name the object: %q", d.Message)
	}
	if out := cluster.Kubectl(t, "-n", naww, "get", "deployments", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Fatalf("naww holds %q", out)
	}
	out, err := s.kedge(t, "status", "walk")
	if !strings.Contains(out, naww+"/nginx") {
		t.Errorf("kedge status does not name the object (%v):\n%s", err, out)
	}

	grant(everythingIn, naww) // and no commit
	s.awaitDeployment(t, "walk", healthyAt(commit, 1))
	cluster.Kubectl(t, "-n", naww, "get", "deployment", "nginx")
}
