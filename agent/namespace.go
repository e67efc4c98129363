package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// namespaceInterval is the time between two checks of the inventory's namespace.
const namespaceInterval = 5 * time.Second

// namespaceCheck checks whether the namespace of the inventory exists. A pod runs in that namespace. For an agent outside of
// its cluster the namespace may be missing, and nothing can be applied then.
type namespaceCheck struct {
	cfg     Config
	cluster *rest.Config
	missing atomic.Bool
}

func newNamespaceCheck(cfg Config, cluster *rest.Config) *namespaceCheck {
	return &namespaceCheck{cfg: cfg, cluster: cluster}
}

// run checks until the namespace exists or ctx ends.
func (c *namespaceCheck) run(ctx context.Context) error {
	if c.cfg.Kubeconfig != "" {
		for c.check(ctx) && wait.For(ctx, namespaceInterval) {
		}
	}
	<-ctx.Done()
	return nil
}

// check reads the namespace. It reports whether to check again.
func (c *namespaceCheck) check(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	client, err := metadata.NewForConfig(c.cluster)
	if err == nil {
		_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, c.cfg.Namespace, metav1.GetOptions{})
	}
	missing := apierrors.IsNotFound(err)
	if previous := c.missing.Swap(missing); missing != previous {
		if missing {
			c.cfg.Log.Error("the namespace of the inventory does not exist", obs.Err(c.problem()))
		} else {
			c.cfg.Log.Info("the namespace of the inventory exists", "namespace", c.cfg.Namespace)
		}
	}
	// An agent that may not read namespaces cannot check. Other errors are temporary.
	return err != nil && !apierrors.IsForbidden(err)
}

func (c *namespaceCheck) problem() error {
	return fmt.Errorf("namespace %q, where this agent stores its inventory, does not exist in the cluster: create it, or set --namespace "+
		"(the manifest of `kedge agent enroll` creates kedge-agent-<name>)", c.cfg.Namespace)
}

// ready adds a missing namespace to the problems that next returns.
func (c *namespaceCheck) ready(ctx context.Context, next func(context.Context) error) error {
	err := next(ctx)
	if c.missing.Load() {
		return errors.Join(c.problem(), err)
	}
	return err
}

// reporter returns a reporter that sets the message of failing targets while the namespace is missing.
func (c *namespaceCheck) reporter(next engine.Reporter) engine.Reporter {
	return namespaceReporter{next, c}
}

type namespaceReporter struct {
	engine.Reporter
	check *namespaceCheck
}

// Status implements engine.Reporter.
func (r namespaceReporter) Status(s engine.Status) {
	if r.check.missing.Load() && s.Observed.Sync != fleet.SyncSynced && s.Observed.Sync != fleet.SyncDeleted && s.Observed.Sync != fleet.SyncDetached {
		s.Observed.Message = r.check.problem().Error()
	}
	r.Reporter.Status(s)
}
