package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/version"
	"github.com/kedge-dev/kedge/internal/wire"
)

// introduceTimeout bounds how long connecting waits for an API server that does not answer: the
// versions are nice to know, no more.
const introduceTimeout = 5 * time.Second

// introduction is what an agent says of itself and its cluster.
type introduction struct {
	cfg     Config
	cluster *rest.Config

	mu      sync.Mutex
	uid     string // never changes, so it is read once
	version string
	readAt  time.Time
}

func newIntroduction(cfg Config, cluster *rest.Config) *introduction {
	return &introduction{cfg: cfg, cluster: cluster}
}

// versionLife is how long the Kubernetes version is believed: clusters are upgraded under their
// agents, but an agent that cannot reach its server must not keep asking its cluster.
const versionLife = 10 * time.Minute

// hello implements link.Config.Hello.
func (i *introduction) hello(ctx context.Context) wire.Hello {
	ctx, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.version == "" || time.Since(i.readAt) > versionLife {
		read, err := kubeVersion(ctx, i.cluster)
		if err != nil {
			i.cfg.Log.Warn("reading the version of the cluster", obs.Err(err))
		} else {
			i.version, i.readAt = read, time.Now()
		}
		if i.uid == "" {
			i.uid = clusterUID(ctx, i.cluster)
		}
	}
	return wire.Hello{AgentVersion: version.String(), Replica: i.cfg.Replica, KubeVersion: i.version, ClusterUID: i.uid}
}

// kubeVersion asks for /version itself: the discovery client would link every API type there is.
func kubeVersion(ctx context.Context, cluster *rest.Config) (string, error) {
	base, _, err := rest.DefaultServerUrlFor(cluster)
	if err != nil {
		return "", fmt.Errorf("finding the API server: %w", err)
	}
	client, err := rest.HTTPClientFor(cluster)
	if err != nil {
		return "", fmt.Errorf("preparing to ask the API server: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
	if err != nil {
		return "", fmt.Errorf("preparing to ask the API server: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("asking the API server: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var info apiversion.Info
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&info); err != nil {
		return "", fmt.Errorf("reading what the API server answers with status %s: %w", resp.Status, err)
	}
	return info.GitVersion, nil
}

// clusterUID is the UID of kube-system, "" where the agent may not read it.
func clusterUID(ctx context.Context, cluster *rest.Config) string {
	client, err := metadata.NewForConfig(cluster)
	if err != nil {
		return ""
	}
	ns, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		return "" // a restricted agent may not read it, and needs not
	}
	return string(ns.GetUID())
}
