package reposync

import (
	"strconv"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestOnlySoManyClustersAreRemembered(t *testing.T) {
	t.Parallel()
	var c clusters
	if _, ok := c.get("a"); ok {
		t.Error("something is known from the start")
	}
	for i := range 3 * maxClusters {
		version := strconv.Itoa(i)
		c.put(version, fleet.Capabilities{KubeVersion: version})
		if got, ok := c.get(version); !ok || got.KubeVersion != version {
			t.Fatalf("the last one is not known: %v", got)
		}
	}
	if len(c.of) != maxClusters {
		t.Errorf("%d are remembered, want %d", len(c.of), maxClusters)
	}
}
