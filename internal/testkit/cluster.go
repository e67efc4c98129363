package testkit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/localcluster"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a real control plane for tests. Its methods are safe for concurrent use.
type Cluster struct {
	*localcluster.Cluster
	binDir string
	config *rest.Config
}

// shared is the cluster that all tests of this binary share.
var shared sharedCluster

type sharedCluster struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

func (s *sharedCluster) start() (*Cluster, error) {
	s.once.Do(func() { s.cluster, s.err = startCluster(context.Background(), "shared") })
	return s.cluster, s.err
}

func (s *sharedCluster) stop() error {
	// A cluster that was not started by now is not needed.
	s.once.Do(func() { s.err = os.ErrClosed })
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Stop()
}

// SharedCluster returns the cluster that all tests of this binary share, and starts it on the first call. It
// skips the test with -short.
func SharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	skipShort(tb)
	c, err := shared.start()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// StartCluster starts a cluster for this test only and stops it at its end. It skips the test with -short.
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	skipShort(tb)
	c, err := startCluster(tb.Context(), nameOf(tb.Name()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func skipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs programs that -short excludes")
	}
}

func startCluster(ctx context.Context, name string) (*Cluster, error) {
	binDir, err := controlPlane.dir(ctx)
	if err != nil {
		return nil, err
	}
	local, err := localcluster.Start(ctx, localcluster.Config{
		BinDir: binDir,
		Name:   name,
		Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", local.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig of cluster %q: %w", name, err)
	}
	config.QPS = -1 // no client-side rate limit in tests
	return &Cluster{Cluster: local, binDir: binDir, config: config}, nil
}

// nameOf converts the name of a test to a Kubernetes name.
func nameOf(test string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, strings.TrimPrefix(test, "Test"))
	const keep = 40 // leaves space for a suffix
	return cmp.Or(strings.Trim(name[:min(len(name), keep)], "-"), "test")
}

// RESTConfig returns a new configuration for a client with all permissions.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Dynamic returns a client with all permissions.
func (c *Cluster) Dynamic(tb testing.TB) dynamic.Interface {
	tb.Helper()
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// cleanupContext returns a context for Cleanup functions, where tb.Context has ended.
func cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}
