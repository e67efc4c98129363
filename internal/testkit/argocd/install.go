package argocd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const kubeconfigFile = "kubeconfig"

type object = map[string]any

// install applies the manifests of Argo CD, except its workloads, and creates the folders and the kubeconfig of
// its processes.
func (i *Instance) install(tb testing.TB) {
	tb.Helper()
	for _, name := range []string{"tmp", "tls", "ssh", "gnupg", "plugins"} {
		if err := os.Mkdir(i.path(name), 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	// In a pod, a ConfigMap is mounted here.
	if err := os.WriteFile(i.path("ssh", "ssh_known_hosts"), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	i.installCRDs(tb)
	objects, err := i.objects()
	if err != nil {
		tb.Fatal(err)
	}
	i.cfg.Cluster.Apply(tb, objects)
	if err := i.writeKubeconfig(tb); err != nil {
		tb.Fatal(err)
	}
}

// installCRDs installs the CRDs that the controller uses. That of ApplicationSets is large, and nothing here
// reads it.
func (i *Instance) installCRDs(tb testing.TB) {
	tb.Helper()
	crd := func(name string) string { return filepath.Join(i.cfg.BinDir, "manifests", "crds", name+"-crd.yaml") }
	// The annotation of a client-side apply cannot hold a CRD of this size.
	i.cfg.Cluster.Kubectl(tb, "apply", "--server-side", "--force-conflicts", "-f", crd("application"), "-f", crd("appproject"))
	// kubectl wait fails for a CRD that has no conditions yet.
	testkit.Eventually(tb, startTimeout, func(context.Context) error {
		_, err := i.cfg.Cluster.TryKubectl(tb, "-n", i.cfg.Namespace, "get", "applications,appprojects")
		return err
	})
}

// objects returns the settings and roles of the manifests, and what the server of Argo CD, which does not run
// here, or its operator adds: the secret key, the project default, and settings.
func (i *Instance) objects() (string, error) {
	files, err := filepath.Glob(filepath.Join(i.cfg.BinDir, "manifests", "base", "*", "argocd-*.yaml"))
	if err != nil {
		return "", err
	}
	documents := []string{i.project()}
	if !i.cfg.NamespaceInstall {
		documents = append(documents, i.adminBinding())
	}
	for _, file := range files {
		document, err := i.load(file)
		if err != nil {
			return "", fmt.Errorf("reading a manifest of Argo CD: %w", err)
		}
		documents = append(documents, document)
	}
	return strings.Join(documents, "\n---\n"), nil
}

func (i *Instance) load(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var o object
	if err := yaml.Unmarshal(raw, &o); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	o["metadata"].(object)["namespace"] = i.cfg.Namespace
	switch filepath.Base(file) {
	case "argocd-cm.yaml":
		data := o["data"].(object)
		data["installationID"] = i.cfg.Namespace
		for key, value := range i.cfg.Settings {
			data[key] = value
		}
	case "argocd-secret.yaml":
		o["stringData"] = object{"server.secretkey": rand.Text()}
	}
	raw, err = yaml.Marshal(o)
	return string(raw), err
}

func (i *Instance) project() string {
	return fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: %s}
spec:
  sourceRepos: ['*']
  destinations: [{server: '*', namespace: '*'}]
  clusterResourceWhitelist: [{group: '*', kind: '*'}]
`, i.cfg.Namespace)
}

// adminBinding grants the same permissions as the ClusterRole of install.yaml.
func (i *Instance) adminBinding() string {
	return fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-%[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
`, ServiceAccount, i.cfg.Namespace)
}

// writeKubeconfig writes a kubeconfig of the ServiceAccount, in JSON, which is YAML too.
func (i *Instance) writeKubeconfig(tb testing.TB) error {
	tb.Helper()
	config := i.cfg.Cluster.ServiceAccountConfig(tb, i.cfg.Namespace, ServiceAccount)
	raw, err := json.Marshal(kubeconfig(config))
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of Argo CD: %w", err)
	}
	return os.WriteFile(i.path(kubeconfigFile), raw, 0o600)
}

func kubeconfig(config *rest.Config) object {
	const name = "argocd"
	return object{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": name,
		"clusters": []object{{"name": name, "cluster": object{
			"server": config.Host, "certificate-authority-data": config.CAData,
		}}},
		"users":    []object{{"name": name, "user": object{"token": config.BearerToken}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": name}}},
	}
}
