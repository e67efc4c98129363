package kubeapi

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster identifies the cluster that holds the resources.
type cluster struct {
	reader client.Reader

	mu    sync.Mutex
	known types.UID
}

// uid returns the UID of the namespace kube-system, by which agents identify their cluster.
func (c *cluster) uid(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known != "" {
		return string(c.known), nil
	}
	var namespace corev1.Namespace
	if err := c.reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, &namespace); err != nil {
		return "", fmt.Errorf("reading namespace kube-system: %w", err)
	}
	c.known = namespace.UID
	return string(c.known), nil
}
