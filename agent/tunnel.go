package agent

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/kubeproxy"
	"github.com/kedge-dev/kedge/internal/agentnames"
)

// tunnel serves the requests of people. It is nil if the agent offers no tunnels.
type tunnel struct{ *kubeproxy.Proxy }

func newTunnel(cfg Config, cluster *rest.Config, policy *policyFile) (*tunnel, error) {
	if !cfg.Tunnel {
		return nil, nil //nolint:nilnil // there is none
	}
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing the client for the cluster: %w", err)
	}
	p, err := kubeproxy.New(cluster, kubeproxy.Account{Client: client, Namespace: cfg.Namespace, Name: agentnames.Tunnel}, cfg.Log)
	if err != nil {
		return nil, err
	}
	policy.restrictTunnel(p)
	return &tunnel{p}, nil
}

// run serves until ctx ends.
func (t *tunnel) run(ctx context.Context) error {
	if t == nil {
		<-ctx.Done()
		return nil
	}
	return t.Run(ctx)
}
