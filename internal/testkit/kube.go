package testkit

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var (
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
)

// Namespace creates a namespace for this test and returns its unique name. It is deleted at the end of the
// test, without waiting for the deletion.
func (c *Cluster) Namespace(tb testing.TB) string {
	tb.Helper()
	client := c.Dynamic(tb).Resource(namespaces)
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"generateName": nameOf(tb.Name()) + "-"},
	}}
	made, err := client.Create(tb.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("making a namespace: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := cleanupContext()
		defer cancel()
		err := client.Delete(ctx, made.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) { // the test may have deleted it
			tb.Errorf("deleting namespace %q: %v", made.GetName(), err)
		}
	})
	return made.GetName()
}

// Kubectl runs kubectl with all permissions and returns its output. A failure ends the test.
func (c *Cluster) Kubectl(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := c.kubectl(tb.Context(), "", args...)
	if err != nil {
		tb.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryKubectl is Kubectl for commands that may fail; it returns both streams and the error.
func (c *Cluster) TryKubectl(tb testing.TB, args ...string) (string, error) {
	tb.Helper()
	return c.kubectl(tb.Context(), "", args...)
}

// Apply applies manifests with kubectl apply. A failure ends the test.
func (c *Cluster) Apply(tb testing.TB, manifests string) {
	tb.Helper()
	if out, err := c.kubectl(tb.Context(), manifests, "apply", "-f", "-"); err != nil {
		tb.Fatalf("applying: %v\n%s", err, out)
	}
}

// kubectl returns the standard output, followed by the standard error if it failed.
func (c *Cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.binDir, "kubectl"), args...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.Kubeconfig(),
		"KUBECACHEDIR="+filepath.Join(filepath.Dir(c.Kubeconfig()), "kubectl-cache"))
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String() + stderr.String(), err
	}
	return stdout.String(), nil
}

// ServiceAccountConfig returns a configuration for a client with the identity of a ServiceAccount, with a token
// of one hour.
func (c *Cluster) ServiceAccountConfig(tb testing.TB, namespace, name string) *rest.Config {
	tb.Helper()
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     map[string]any{"expirationSeconds": int64(3600)},
	}}
	made, err := c.Dynamic(tb).Resource(serviceAccounts).Namespace(namespace).
		Create(tb.Context(), request, metav1.CreateOptions{}, "token")
	if err != nil {
		tb.Fatalf("requesting a token for ServiceAccount %s/%s: %v", namespace, name, err)
	}
	token, _, err := unstructured.NestedString(made.Object, "status", "token")
	if err != nil || token == "" {
		tb.Fatalf("requesting a token for ServiceAccount %s/%s: none in the answer (%v)", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = token
	return config
}
