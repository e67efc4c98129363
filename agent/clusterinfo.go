package agent

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/version"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
)

// clusterTimeout bounds how long the agent waits for an API server that does not answer before it connects to the server.
const clusterTimeout = 5 * time.Second

// clusterInfo reads the version, the UID and the capabilities of the cluster, which the agent sends to the server.
type clusterInfo struct {
	cfg     Config
	cluster *rest.Config

	// current are the capabilities that were last read completely; empty before.
	current atomic.Pointer[fleet.Capabilities]
	events  wait.Signal // signals that the capabilities may have changed

	mu           sync.Mutex // locked while the cluster is read
	uid          string     // read only once, because it does not change
	version      string
	readAt       time.Time    // when current was read
	missingSince time.Time    // when an API version of current was first missing; zero when none is
	failures     wait.Backoff // since the last successful read
	retryAt      time.Time    // earliest time of the next attempt after a failure
}

func newClusterInfo(cfg Config, cluster *rest.Config) *clusterInfo {
	i := &clusterInfo{cfg: cfg, cluster: cluster, events: wait.NewSignal()}
	i.current.Store(&fleet.Capabilities{})
	return i
}

const (
	// capabilitiesTTL is how long capabilities are used without another read, for agents that may not watch their changes.
	// An agent that cannot reach its server must not read the cluster with each attempt.
	capabilitiesTTL = 10 * time.Minute
	// capabilitiesRetry is the delay after the first failure. Each further failure doubles it, up to capabilitiesTTL.
	capabilitiesRetry = time.Second
)

// hello implements link.Config.Hello.
func (i *clusterInfo) hello(ctx context.Context) wire.Hello {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := time.Now(); now.Sub(i.readAt) > capabilitiesTTL && !now.Before(i.retryAt) {
		if i.readLocked(ctx); i.failures.Attempts() > 0 {
			i.events.Set() // run retries without another connection
		}
	}
	return wire.Hello{AgentVersion: version.String(), Replica: i.cfg.Replica, KubeVersion: i.version, ClusterUID: i.uid, Capabilities: i.capabilities(), EngineNamespace: i.cfg.ArgoCDNamespace}
}

// invalidate makes the next hello read the cluster: the capabilities that a replica has read as a standby may be outdated.
func (i *clusterInfo) invalidate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current.Store(&fleet.Capabilities{})
	i.readAt, i.missingSince, i.retryAt = time.Time{}, time.Time{}, time.Time{}
}

// capabilities implements link.Config.Capabilities.
func (i *clusterInfo) capabilities() fleet.Capabilities { return *i.current.Load() }

// refresh reads the capabilities. It reports whether they have changed. retry is the delay before the next read if this one
// failed or an API version is missing, and 0 otherwise.
func (i *clusterInfo) refresh(ctx context.Context) (changed bool, retry time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed = i.readLocked(ctx)
	switch {
	case i.failures.Attempts() > 0:
		retry = max(time.Until(i.retryAt), time.Millisecond)
	case !i.missingSince.IsZero():
		retry = max(time.Until(i.missingSince.Add(confirmAfter)), time.Millisecond)
	}
	return changed, retry
}

// readLocked reads the capabilities and reports whether they have changed. After a failure the previous ones stay: charts
// must not be rendered for incomplete capabilities.
func (i *clusterInfo) readLocked(ctx context.Context) (changed bool) {
	readCtx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	var apis []string
	kube, err := kubeVersion(readCtx, i.cluster)
	if err == nil {
		i.version = kube
		err = checkReady(readCtx, i.cluster)
	}
	if err == nil {
		apis, err = apiVersions(readCtx, i.cluster)
	}
	if i.uid == "" {
		i.uid = clusterUID(readCtx, i.cluster)
	}
	if err != nil {
		delay := i.failures.Next(capabilitiesRetry, capabilitiesTTL)
		i.retryAt = time.Now().Add(delay)
		if ctx.Err() == nil {
			i.cfg.Log.Warn("reading the capabilities of the cluster failed: charts are rendered for the previous ones", obs.Err(err), "retryIn", delay.String())
		}
		return false
	}
	i.failures.Reset()
	i.retryAt = time.Time{}
	read := wire.FitCapabilities(i.withMissingLocked(fleet.Capabilities{KubeVersion: kube, APIVersions: apis}))
	changed = read.Hash() != i.capabilities().Hash()
	i.current.Store(&read)
	i.readAt = time.Now()
	return changed
}

// withMissingLocked adds API versions that have been missing for a short time only. An API server that has just started may
// not serve all kinds yet, and objects that charts create only for these kinds would be pruned.
func (i *clusterInfo) withMissingLocked(read fleet.Capabilities) fleet.Capabilities {
	known := i.capabilities().APIVersions
	if !slices.ContainsFunc(known, func(api string) bool { return !slices.Contains(read.APIVersions, api) }) {
		i.missingSince = time.Time{}
		return read
	}
	if i.missingSince.IsZero() {
		i.missingSince = time.Now()
	}
	if time.Since(i.missingSince) >= confirmAfter {
		i.missingSince = time.Time{}
		return read
	}
	read.APIVersions = slices.Concat(known, read.APIVersions)
	return read
}

// clusterUID returns the UID of the kube-system namespace, or "" when it cannot be read: a namespaced agent may not read it,
// and does not need it.
func clusterUID(ctx context.Context, cluster *rest.Config) string {
	client, err := metadata.NewForConfig(cluster)
	if err != nil {
		return ""
	}
	ns, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return string(ns.GetUID())
}
