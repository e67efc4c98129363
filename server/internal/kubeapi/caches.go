package kubeapi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kedge-dev/kedge/api/v1alpha1"
)

// kinds are the kinds of resources.
var kinds = []string{v1alpha1.KindGitOpsDeployment, v1alpha1.KindManagedEnvironment, v1alpha1.KindRepositoryCredential, v1alpha1.KindSyncRun}

// caches has one cache for each kind, because a controller waits for everything in its cache: with one cache, a missing
// definition would stop all kinds.
type caches struct {
	scheme *runtime.Scheme
	byKind map[string]cache.Cache
}

func newCaches(m manager.Manager) (*caches, error) {
	out := &caches{scheme: m.GetScheme(), byKind: map[string]cache.Cache{}}
	for _, kind := range kinds {
		c, err := cache.New(m.GetConfig(), cache.Options{
			HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
		})
		if err != nil {
			return nil, err
		}
		if err := m.Add(c); err != nil {
			return nil, err
		}
		out.byKind[kind] = c
	}
	return out, nil
}

// Get implements client.Reader.
func (c *caches) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	reader, err := c.of(o)
	if err != nil {
		return err
	}
	return reader.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (c *caches) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	reader, err := c.of(list)
	if err != nil {
		return err
	}
	return reader.List(ctx, list, opts...)
}

func (c *caches) of(o runtime.Object) (cache.Cache, error) {
	gvk, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		if gvk.Kind == kind || gvk.Kind == kind+"List" {
			return c.byKind[kind], nil
		}
	}
	return nil, fmt.Errorf("kind %s is not cached", gvk.Kind)
}
