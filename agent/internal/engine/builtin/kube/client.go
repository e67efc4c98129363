package kube

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

// Parallelism is how many requests the engine has open at once, over all targets.
const Parallelism = 8

// Timeouts bound requests; tests make them short.
type Timeouts struct {
	Request  time.Duration // the longest that one request may take
	Contents time.Duration // the longest that it may take to find out what would be deleted along with an object
	slot     time.Duration // the longest that a slow request counts as one of those at once
}

// DefaultTimeouts are those of an agent.
func DefaultTimeouts() Timeouts {
	return Timeouts{Request: 35 * time.Second, Contents: 5 * time.Minute, slot: 2 * time.Second}
}

// Client sends requests to the API server. Safe for concurrent use.
type Client struct {
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
	Own      metadata.Interface // with the rights of the agent itself
	Mapper   *Mapper
	timing   Timeouts
	slots    *semaphore.Weighted // first come, first served: no target starves another

	config *rest.Config
	client *http.Client
	others *sync.Map // of *cluster by ServiceAccount
}

// NewClient makes a client with the rights of the agent. It does no I/O.
func NewClient(cfg *rest.Config, timing Timeouts) (*Client, error) {
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
		ctx, cancel := context.WithTimeout(ctx, timing.Request)
		defer cancel()
		return plain.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
	}
	return &Client{
		Dynamic: dyn, Metadata: meta, Own: meta, Mapper: newMapper(get), timing: timing, slots: semaphore.NewWeighted(Parallelism),
		config: cfg, client: client, others: &sync.Map{},
	}, nil
}

// As returns a client with the rights of a ServiceAccount, given as "namespace/name"; "" is the agent itself. It shares
// connections, kinds and slots with c.
func (c *Client) As(account string) (*Client, error) {
	if account == "" {
		return c, nil
	}
	if known, ok := c.others.Load(account); ok {
		return known.(*Client), nil
	}
	client := *c.client
	client.Transport = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: "system:serviceaccount:" + strings.Replace(account, "/", ":", 1),
	}, client.Transport)
	other := *c
	var err error
	if other.Dynamic, err = dynamic.NewForConfigAndClient(c.config, &client); err != nil {
		return nil, fmt.Errorf("preparing to act as ServiceAccount %s: %w", account, err)
	}
	if other.Metadata, err = metadata.NewForConfigAndClient(c.config, &client); err != nil {
		return nil, fmt.Errorf("preparing to act as ServiceAccount %s: %w", account, err)
	}
	known, _ := c.others.LoadOrStore(account, &other)
	return known.(*Client), nil
}

// Slot waits for one of the slots that bound concurrent requests, or until ctx ends. A request that takes long releases
// its slot early, so that a target with a slow webhook does not delay others.
func (c *Client) Slot(ctx context.Context) (release func()) {
	if c.slots.Acquire(ctx, 1) != nil {
		return func() {}
	}
	free := sync.OnceFunc(func() { c.slots.Release(1) })
	timer := time.AfterFunc(c.timing.slot, free)
	return func() { timer.Stop(); free() }
}

// resource returns the client for objects of m in the namespace of ref.
func (c *Client) resource(m Mapping, ref fleet.ObjectRef) dynamic.ResourceInterface {
	if m.Namespaced {
		return c.Dynamic.Resource(m.Resource).Namespace(ref.Namespace)
	}
	return c.Dynamic.Resource(m.Resource)
}

// peek reads the metadata of an object.
func (c *Client) peek(ctx context.Context, m Mapping, ref fleet.ObjectRef) (*metav1.PartialObjectMetadata, error) {
	if m.Namespaced {
		return c.Metadata.Resource(m.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	return c.Metadata.Resource(m.Resource).Get(ctx, ref.Name, metav1.GetOptions{})
}

// Read reads a whole object.
func (c *Client) Read(ctx context.Context, m Mapping, ref fleet.ObjectRef) (*unstructured.Unstructured, error) {
	return c.resource(m, ref).Get(ctx, ref.Name, metav1.GetOptions{})
}

// GVK returns the kind of an object.
func GVK(ref fleet.ObjectRef) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: ref.Group, Version: ref.Version, Kind: ref.Kind}
}
