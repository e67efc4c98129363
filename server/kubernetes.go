package server

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/kubeapi"
)

// KubernetesConfig configures the API server that holds the custom resources of Kedge. The server reads and writes its own
// resources there, reads the Secrets that they name, and applies nothing. Without it, there are no custom resources.
type KubernetesConfig struct {
	// Kubeconfig is the file with the address and the credential of that API server.
	Kubeconfig string
	// InCluster uses the ServiceAccount of the pod in which the server runs.
	InCluster bool
}

// newKubernetes returns nil if there are no custom resources.
func newKubernetes(cfg Config, c *control.Service) (*kubeapi.Server, error) {
	k := cfg.Kubernetes
	var cluster *rest.Config
	var err error
	switch {
	case k.Kubeconfig != "" && k.InCluster:
		return nil, errors.New("--kubeconfig and --in-cluster exclude each other")
	case k.Kubeconfig != "":
		cluster, err = clientcmd.BuildConfigFromFlags("", k.Kubeconfig)
	case k.InCluster:
		cluster, err = rest.InClusterConfig()
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the API server for custom resources: %w", err)
	}
	return kubeapi.New(kubeapi.Config{Cluster: cluster, Log: cfg.Log}, c)
}
