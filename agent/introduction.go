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

// introduceTimeout bounds how long connecting waits for an API server that does not answer: the
// versions are nice to know, no more.
const introduceTimeout = 5 * time.Second

// introduction is what an agent says of itself and its cluster.
type introduction struct {
	cfg     Config
	cluster *rest.Config

	// offers is what the cluster offers, as it was last read whole; zero before.
	offers atomic.Pointer[fleet.Capabilities]
	events chan struct{} // that may be about to change

	mu       sync.Mutex // held while the cluster is asked
	uid      string     // never changes, so it is read once
	version  string
	readAt   time.Time    // when offers was read
	lostAt   time.Time    // since when something of it has been missing; zero when nothing is
	failures wait.Backoff // to read it, since then
	retryAt  time.Time    // not before, after a failure
}

func newIntroduction(cfg Config, cluster *rest.Config) *introduction {
	i := &introduction{cfg: cfg, cluster: cluster, events: make(chan struct{}, 1)}
	i.offers.Store(&fleet.Capabilities{})
	return i
}

const (
	// offersLife is how long what a cluster offers is believed. It is a backstop, for agents that may not watch
	// what changes it: an agent that cannot reach its server must not keep asking its cluster.
	offersLife = 10 * time.Minute
	// offersRetry is when it is read again after the first failure; each one more doubles that, up to offersLife.
	offersRetry = time.Second
)

// hello implements link.Config.Hello.
func (i *introduction) hello(ctx context.Context) wire.Hello {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := time.Now(); now.Sub(i.readAt) > offersLife && !now.Before(i.retryAt) {
		if i.readLocked(ctx); i.failures.Attempts() > 0 {
			wait.Signal(i.events) // run does not wait for the next connection
		}
	}
	return wire.Hello{AgentVersion: version.String(), Replica: i.cfg.Replica, KubeVersion: i.version, ClusterUID: i.uid, Capabilities: i.capabilities()}
}

// forget has the cluster asked anew at the next Hello: what a replica knows from when it stood by may be old, and
// must not be told as news.
func (i *introduction) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.offers.Store(&fleet.Capabilities{})
	i.readAt, i.lostAt, i.retryAt = time.Time{}, time.Time{}, time.Time{}
}

// capabilities implements link.Config.Capabilities.
func (i *introduction) capabilities() fleet.Capabilities { return *i.offers.Load() }

// look reads anew what the cluster offers. It reports whether that has changed, and when to look again if it
// could not be read or is in doubt, 0 otherwise.
func (i *introduction) look(ctx context.Context) (changed bool, again time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed = i.readLocked(ctx)
	switch {
	case i.failures.Attempts() > 0:
		again = max(time.Until(i.retryAt), time.Millisecond)
	case !i.lostAt.IsZero():
		again = max(time.Until(i.lostAt.Add(lookOnceMore)), time.Millisecond)
	}
	return changed, again
}

// readLocked reports whether the cluster offers something else than before. What cannot be read leaves what is
// known: half of it, or none, would be another cluster's.
func (i *introduction) readLocked(ctx context.Context) (changed bool) {
	asking, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	var apis []string
	kube, err := kubeVersion(asking, i.cluster)
	if err == nil {
		i.version = kube
		err = ready(asking, i.cluster)
	}
	if err == nil {
		apis, err = apiVersions(asking, i.cluster)
	}
	if i.uid == "" {
		i.uid = clusterUID(asking, i.cluster)
	}
	if err != nil {
		delay := i.failures.Next(offersRetry, offersLife)
		i.retryAt = time.Now().Add(delay)
		if ctx.Err() == nil {
			i.cfg.Log.Warn("it cannot be read what the cluster offers: charts stay rendered for what the server was told last", obs.Err(err), "retryIn", delay.String())
		}
		return false
	}
	i.failures.Reset()
	i.retryAt = time.Time{}
	offers := wire.FitCapabilities(i.believedLocked(fleet.Capabilities{KubeVersion: kube, APIVersions: apis}))
	changed = offers.Hash() != i.capabilities().Hash()
	i.offers.Store(&offers)
	i.readAt = time.Now()
	return changed
}

// believedLocked is what a cluster offers with what it offered a moment ago: an API server that has just started may not
// know all of its kinds yet, and objects that charts guard by them would be pruned.
func (i *introduction) believedLocked(offers fleet.Capabilities) fleet.Capabilities {
	known := i.capabilities().APIVersions
	if !slices.ContainsFunc(known, func(api string) bool { return !slices.Contains(offers.APIVersions, api) }) {
		i.lostAt = time.Time{}
		return offers
	}
	if i.lostAt.IsZero() {
		i.lostAt = time.Now()
	}
	if time.Since(i.lostAt) >= lookOnceMore {
		i.lostAt = time.Time{}
		return offers
	}
	offers.APIVersions = slices.Concat(known, offers.APIVersions)
	return offers
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
