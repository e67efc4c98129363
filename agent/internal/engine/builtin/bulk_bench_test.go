package builtin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// synced tells when a version was reached.
type synced chan fleet.Version

func (s synced) Status(st engine.Status) {
	if st.Observed.Sync == fleet.SyncSynced {
		s <- st.Observed.Version
	}
}

func (s synced) Event(fleet.TargetID, fleet.Event) {}

// BenchmarkFirstSync applies many ConfigMaps that are not there yet, until they are Synced.
func BenchmarkFirstSync(b *testing.B) {
	cluster := testkit.SharedCluster(b)
	for _, n := range []int{500, 2000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			for range b.N {
				done := make(synced, 64)
				e, err := builtin.New(builtin.Config{
					AgentID: fleet.NewAgentID(), Namespace: cluster.Namespace(b), Scope: fleet.ScopeCluster,
					REST: cluster.RESTConfig(), Reporter: done,
				})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := e.Recover(b.Context()); err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx) }()
				d := bulk(b, cluster.Namespace(b), n)
				b.ResetTimer()
				e.Set(d)
				<-done
				b.StopTimer()
				cancel()
				<-ended
			}
		})
	}
}

func bulk(b *testing.B, namespace string, n int) engine.Desired {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: bulk-%d}\ndata: {key: value}\n", i)
	}
	objects, err := manifest.Parse("bulk.yaml", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	set, err := manifest.NewSet(objects, namespace)
	if err != nil {
		b.Fatal(err)
	}
	return engine.Desired{
		Target: fleet.NewTargetID(), Tenant: "default", Deployment: "bulk", Objects: set,
		State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 1}, Digest: set.Digest(), Namespace: namespace, Policy: fleet.Policy{Prune: true}},
	}
}
