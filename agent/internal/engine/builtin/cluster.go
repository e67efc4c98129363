package builtin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// parallelism is how many requests the engine has open at once, over all targets.
const parallelism = 8

// cluster is the engine's way to the API server. Safe for concurrent use.
type cluster struct {
	dynamic  dynamic.Interface
	metadata metadata.Interface
	own      metadata.Interface // with the rights of the agent itself, whoever acts
	mapper   *mapper
	timing   timing
	slots    *semaphore.Weighted // first come, first served: no target starves another

	config *rest.Config
	client *http.Client
	others *sync.Map // of *cluster by ServiceAccount
}

func newCluster(cfg *rest.Config, timing timing) (*cluster, error) {
	cfg = rest.CopyConfig(cfg)
	// The engine limits itself by parallelism; a limit by rate would only add latency.
	cfg.QPS = -1
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
	}
	meta, err := metadata.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
	}
	raw := rest.CopyConfig(cfg)
	raw.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	plain, err := rest.UnversionedRESTClientForConfigAndClient(raw, client)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
	}
	get := func(ctx context.Context, path string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, timing.request)
		defer cancel()
		return plain.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
	}
	return &cluster{
		dynamic: dyn, metadata: meta, own: meta, mapper: newMapper(get), timing: timing, slots: semaphore.NewWeighted(parallelism),
		config: cfg, client: client, others: &sync.Map{},
	}, nil
}

// as is the same way to the API server with the rights of a ServiceAccount, "namespace/name"; "" is the
// agent itself. Connections, kinds and places among the requests at once are shared.
func (c *cluster) as(account string) (*cluster, error) {
	if account == "" {
		return c, nil
	}
	if known, ok := c.others.Load(account); ok {
		return known.(*cluster), nil
	}
	client := *c.client
	client.Transport = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: "system:serviceaccount:" + strings.Replace(account, "/", ":", 1),
	}, client.Transport)
	other := *c
	var err error
	if other.dynamic, err = dynamic.NewForConfigAndClient(c.config, &client); err != nil {
		return nil, fmt.Errorf("preparing to act as ServiceAccount %s: %w", account, err)
	}
	if other.metadata, err = metadata.NewForConfigAndClient(c.config, &client); err != nil {
		return nil, fmt.Errorf("preparing to act as ServiceAccount %s: %w", account, err)
	}
	known, _ := c.others.LoadOrStore(account, &other)
	return known.(*cluster), nil
}

// slot waits for a place among the requests at once, or until ctx ends. A request that takes long
// gives its place back while it goes on, so that a target whose webhooks hang does not delay others.
func (c *cluster) slot(ctx context.Context) (release func()) {
	if c.slots.Acquire(ctx, 1) != nil {
		return func() {}
	}
	free := sync.OnceFunc(func() { c.slots.Release(1) })
	timer := time.AfterFunc(c.timing.slot, free)
	return func() { timer.Stop(); free() }
}

// resource returns the client for objects of m in the namespace of ref.
func (c *cluster) resource(m mapping, ref fleet.ObjectRef) dynamic.ResourceInterface {
	if m.namespaced {
		return c.dynamic.Resource(m.resource).Namespace(ref.Namespace)
	}
	return c.dynamic.Resource(m.resource)
}

// peek reads the metadata of an object.
func (c *cluster) peek(ctx context.Context, m mapping, ref fleet.ObjectRef) (*metav1.PartialObjectMetadata, error) {
	if m.namespaced {
		return c.metadata.Resource(m.resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	return c.metadata.Resource(m.resource).Get(ctx, ref.Name, metav1.GetOptions{})
}

// read reads a whole object.
func (c *cluster) read(ctx context.Context, m mapping, ref fleet.ObjectRef) (*unstructured.Unstructured, error) {
	return c.resource(m, ref).Get(ctx, ref.Name, metav1.GetOptions{})
}

func gvkOf(ref fleet.ObjectRef) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: ref.Group, Version: ref.Version, Kind: ref.Kind}
}
