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

// homeInterval is how often the namespace of the inventory is looked for.
const homeInterval = 5 * time.Second

// home watches whether the namespace of the inventory is there. A pod lives in it; an agent outside
// of its cluster was only told a name, and without the namespace nothing can be applied.
type home struct {
	cfg     Config
	cluster *rest.Config
	missing atomic.Bool
}

func newHome(cfg Config, cluster *rest.Config) *home { return &home{cfg: cfg, cluster: cluster} }

// run looks until the namespace is there or ctx ends.
func (h *home) run(ctx context.Context) error {
	if h.cfg.Kubeconfig != "" {
		for h.look(ctx) && wait.For(ctx, homeInterval) {
		}
	}
	<-ctx.Done()
	return nil
}

// look reports whether to look again.
func (h *home) look(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	client, err := metadata.NewForConfig(h.cluster)
	if err == nil {
		_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, h.cfg.Namespace, metav1.GetOptions{})
	}
	missing := apierrors.IsNotFound(err)
	if was := h.missing.Swap(missing); missing != was {
		if missing {
			h.cfg.Log.Error("the namespace of the inventory is missing", obs.Err(h.problem()))
		} else {
			h.cfg.Log.Info("the namespace of the inventory is there now", "namespace", h.cfg.Namespace)
		}
	}
	// Who may not read namespaces cannot know, and needs not: an API server that is away may
	// still tell.
	return err != nil && !apierrors.IsForbidden(err)
}

func (h *home) problem() error {
	return fmt.Errorf("namespace %q, where this agent keeps its inventory, does not exist in the cluster: create it, or name another with --namespace "+
		"(the manifest of `kedge agent enroll` makes kedge-agent-<name>)", h.cfg.Namespace)
}

// ready adds the missing namespace to what else is wrong.
func (h *home) ready(ctx context.Context, next func(context.Context) error) error {
	err := next(ctx)
	if h.missing.Load() {
		return errors.Join(h.problem(), err)
	}
	return err
}

// reporter returns a reporter that adds the missing namespace to the status of targets that fail because of it.
func (h *home) reporter(next engine.Reporter) engine.Reporter { return homeReporter{next, h} }

type homeReporter struct {
	engine.Reporter
	home *home
}

// Status implements engine.Reporter.
func (r homeReporter) Status(s engine.Status) {
	if r.home.missing.Load() && s.Observed.Sync != fleet.SyncSynced && s.Observed.Sync != fleet.SyncDeleted && s.Observed.Sync != fleet.SyncDetached {
		s.Observed.Message = r.home.problem().Error()
	}
	r.Reporter.Status(s)
}
