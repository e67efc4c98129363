package install_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// strict has every limit.
var strict = install.Admission{
	Namespaces: []string{"team-*", "shop"}, NamespaceLabels: map[string]string{"kedge.dev/managed": "yes"},
	Kinds: []string{"Namespace", "ConfigMap", "Secret", "Pod", "*.apps", "CronJob.batch"}, ExcludeKinds: []string{"DaemonSet.apps"},
	Rules: []string{`request.operation == 'DELETE' || !has(object.metadata.labels) || !('forbidden' in object.metadata.labels)`},
}

// The API server refuses what the policy of a cluster-wide agent does not allow, although RBAC allows it. Everybody else, and the
// objects of the agent itself, are not concerned.
// covers: P9
func TestAdmissionPolicyLimitsTheAgent(t *testing.T) {
	t.Parallel()
	cluster := testkit.StartCluster(t)
	cluster.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {kedge.dev/managed: 'yes'}}\n---\n"+
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: team-b}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other, labels: {kedge.dev/managed: 'yes'}}\n")
	text, err := install.Manifest(options(func(o *install.Options) { o.Admission = &strict; o.WithoutDeployment = true }))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Apply(t, string(text))
	agent := func(args ...string) (string, error) {
		return cluster.TryKubectl(t, append(args, "--as=system:serviceaccount:kedge-agent-prod:kedge-agent")...)
	}
	apply := func(object string) (string, error) {
		file := filepath.Join(t.TempDir(), "object.yaml")
		if err := os.WriteFile(file, []byte(object), 0o600); err != nil {
			t.Fatal(err)
		}
		return agent("apply", "--server-side", "-f", file)
	}
	configMap := func(namespace, more string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: %s%s}\n", namespace, more)
	}
	pod := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: team-a}\nspec: {" + spec + "}\n"
	}
	template := func(spec string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: team-a}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + spec + "}}}\n"
	}
	cron := func(spec string) string {
		return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: j, namespace: team-a}\nspec: {schedule: '0 0 * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, " + spec + "}}}}}\n"
	}
	const plain = "containers: [{name: c, image: i}]"
	// A policy is enforced a moment after it was created.
	testkit.Eventually(t, time.Minute, func(context.Context) error {
		if _, err := apply(configMap("other", "")); err == nil {
			return errors.New("the policy is not enforced")
		}
		return nil
	})
	for i, test := range []struct{ name, object, refused string }{
		{"a namespace that the pattern and the label allow", configMap("team-a", ""), ""},
		{"a namespace without the label", configMap("team-b", ""), "label kedge.dev/managed=yes"},
		{"a namespace that no pattern allows", configMap("other", ""), "only write in namespaces team-*, shop"},
		{"its own namespace", configMap("kedge-agent-prod", ""), ""},
		{"another kind in its own namespace", strings.Replace(template(plain), "team-a", "kedge-agent-prod", 1), "only write in namespaces"},
		{"a kind that is not listed", "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: team-a}\nspec: {ports: [{port: 80}]}\n", "only write these kinds"},
		{"an excluded kind", strings.Replace(template(plain), "kind: Deployment", "kind: DaemonSet", 1), "may not write these kinds"},
		{"an object without a namespace", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: s}\nprovisioner: x\n", "without a namespace"},
		{"a namespace as an object", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-c, labels: {kedge.dev/managed: 'yes'}}\n", ""},
		{"a namespace as an object, without the label", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-d}\n", "label kedge.dev/managed=yes"},
		{"the label in the same request", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-b, labels: {kedge.dev/managed: 'yes'}}\n", "label kedge.dev/managed=yes"},
		{"another namespace as an object", "apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-evil, labels: {kedge.dev/managed: 'yes'}}\n", "only write in namespaces"},
		{"its own rule", configMap("team-a", ", labels: {forbidden: x}"), "refused by the rule of this cluster"},
		{"a plain pod", pod(plain), ""},
		{"a plain template", template(plain), ""},
		{"a plain CronJob", cron(plain), ""},
		{"a privileged container", pod("containers: [{name: c, image: i, securityContext: {privileged: true}}]"), "privileged containers"},
		{"a privileged init container in a template", template(plain + ", initContainers: [{name: x, image: i, securityContext: {privileged: true}}]"), "privileged containers"},
		{"a privileged CronJob", cron("containers: [{name: c, image: i, securityContext: {privileged: true}}]"), "privileged containers"},
		{"the network of the node", template(plain + ", hostNetwork: true"), "hostNetwork"},
		{"a path of the node", template(plain + ", volumes: [{name: v, hostPath: {path: /}}]"), "hostPath"},
		{"a capability", pod("containers: [{name: c, image: i, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]"), "capabilities"},
	} {
		// The specification of a pod cannot change.
		out, err := apply(strings.Replace(test.object, "{name: p,", fmt.Sprintf("{name: p-%d,", i), 1))
		if (err != nil) != (test.refused != "") || !strings.Contains(out+fmt.Sprint(err), test.refused) {
			t.Errorf("%s: %v\n%s, want %q", test.name, err, out, test.refused)
		}
	}
	cluster.Apply(t, configMap("other", "")) // by somebody else
	if out, err := agent("-n", "other", "delete", "configmap", "c"); err == nil || !strings.Contains(out+err.Error(), "only write in namespaces") {
		t.Errorf("a deletion elsewhere: %v\n%s", err, out)
	}
	if out, err := agent("-n", "team-a", "scale", "deployment", "d", "--replicas=2"); err == nil || !strings.Contains(out+err.Error(), "may only write these kinds") {
		t.Errorf("a subresource: %v\n%s", err, out)
	}
	if out, err := agent("-n", "team-a", "delete", "configmap", "c"); err != nil {
		t.Errorf("a deletion in an allowed namespace: %v\n%s", err, out)
	}
}
