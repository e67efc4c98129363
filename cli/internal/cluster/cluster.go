// Package cluster reads from the API servers of clusters through the tunnels of their agents, with the rights of the user. It
// prints nothing and changes nothing, except for Exec.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// timeout limits a request that is not a stream.
const timeout = 30 * time.Second

// metadataOnly asks an API server for the metadata of objects instead of the objects.
const metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// Cluster is the cluster of one agent. It is safe for concurrent use.
type Cluster struct {
	Agent  string
	client *client.Client

	mu    sync.Mutex
	kinds map[string]map[string]kind // by group and version, then by name
}

// kind is a kind of objects that an API server has.
type kind struct {
	Name       string `json:"name"` // plural, as in paths
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
}

// New returns the cluster of an agent.
func New(c *client.Client, agent string) *Cluster {
	return &Cluster{Agent: agent, client: c, kinds: map[string]map[string]kind{}}
}

// Metadata is what all objects have.
type Metadata struct {
	Name              string           `json:"name"`
	Namespace         string           `json:"namespace"`
	UID               string           `json:"uid"`
	CreationTimestamp time.Time        `json:"creationTimestamp"`
	OwnerReferences   []OwnerReference `json:"ownerReferences"`
}

// OwnerReference names the owner of an object.
type OwnerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// path returns the path of something of the API server.
func (c *Cluster) path(parts ...string) string {
	path := c.client.In("agents", c.Agent, "kube")
	for _, p := range parts {
		path += "/" + url.PathEscape(p)
	}
	return path
}

// versionPath returns the path of a group and version, such as apps/v1.
func (c *Cluster) versionPath(groupVersion string) string {
	if group, version, ok := strings.Cut(groupVersion, "/"); ok {
		return c.path("apis", group, version)
	}
	return c.path("api", groupVersion)
}

// read reads a JSON answer.
func (c *Cluster) read(ctx context.Context, path string, query url.Values, accept string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := c.client.Open(ctx, path, query, accept)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("reading the answer of the cluster of agent %s: %w", c.Agent, err)
	}
	return nil
}

// collection returns the path of the objects of a kind in a namespace, which is ignored for kinds without namespaces. An empty
// version means the preferred one.
func (c *Cluster) collection(ctx context.Context, ref fleet.ObjectRef) (string, error) {
	version := ref.Version
	if version == "" && ref.Group == "" {
		version = "v1"
	}
	if version == "" {
		var group struct {
			PreferredVersion struct {
				Version string `json:"version"`
			} `json:"preferredVersion"`
		}
		if err := c.read(ctx, c.path("apis", ref.Group), nil, "", &group); err != nil {
			return "", err
		}
		version = group.PreferredVersion.Version
	}
	groupVersion := strings.TrimPrefix(ref.Group+"/"+version, "/")
	k, err := c.kind(ctx, groupVersion, ref.Kind)
	if err != nil {
		return "", err
	}
	path := c.versionPath(groupVersion)
	if k.Namespaced {
		path += "/namespaces/" + url.PathEscape(ref.Namespace)
	}
	return path + "/" + k.Name, nil
}

// kind finds a kind by discovery, once for each group and version.
func (c *Cluster) kind(ctx context.Context, groupVersion, name string) (kind, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kinds, ok := c.kinds[groupVersion]
	if !ok {
		var list struct {
			Resources []kind `json:"resources"`
		}
		if err := c.read(ctx, c.versionPath(groupVersion), nil, "", &list); err != nil {
			return kind{}, err
		}
		kinds = map[string]kind{}
		for _, k := range list.Resources {
			if !strings.Contains(k.Name, "/") { // not a subresource
				kinds[k.Kind] = k
			}
		}
		c.kinds[groupVersion] = kinds
	}
	k, ok := kinds[name]
	if !ok {
		return kind{}, &client.StatusError{Status: http.StatusNotFound, Problem: apiv1.Problem{Detail: fmt.Sprintf("the cluster of agent %s has no kind %s in %s", c.Agent, name, groupVersion)}}
	}
	return k, nil
}

// list reads all objects at a path. It also returns the version of the list, for watch.
func list[T any](ctx context.Context, c *Cluster, path, fieldSelector, accept string) (items []T, version string, err error) {
	query := url.Values{"limit": {"500"}}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	for {
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		if err := c.read(ctx, path, query, accept, &page); err != nil {
			return nil, "", err
		}
		items = append(items, page.Items...)
		if page.Metadata.Continue == "" {
			return items, page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// errExpired means that a watch cannot continue, and that the objects must be listed again.
var errExpired = errors.New("the watch has expired")

// watch calls each for all objects that are added or changed after a list, until the watch ends.
func watch[T any](ctx context.Context, c *Cluster, path, version string, each func(T)) error {
	query := url.Values{"watch": {"true"}, "resourceVersion": {version}}
	body, err := c.client.Open(ctx, path, query, "")
	if client.Status(err) == http.StatusGone {
		return errExpired
	}
	if err != nil {
		return err
	}
	defer body.Close()
	decoder := json.NewDecoder(body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return errExpired // API servers end watches from time to time
		case err != nil:
			return err
		case e.Type == "ERROR":
			return errExpired
		case e.Type != "ADDED" && e.Type != "MODIFIED":
			continue
		}
		var item T
		if err := json.Unmarshal(e.Object, &item); err != nil {
			return fmt.Errorf("reading a change: %w", err)
		}
		each(item)
	}
}

// Follower receives objects of a list and of the watch after it.
type Follower[T any] struct {
	// Each is called for each object, also again for known ones. first is true in the first list.
	Each func(item T, first bool)
	// Listed is called after the first list. It may be nil.
	Listed func()
	// Lost is called when the cluster cannot be read any more and is tried again.
	Lost func(error)
}

const (
	retryMin = 200 * time.Millisecond
	retryMax = 10 * time.Second
)

// follow lists and watches until ctx ends or the API server refuses. It fails if the first list does.
func follow[T any](ctx context.Context, c *Cluster, path string, f Follower[T]) error {
	pause := time.Duration(0)
	for first, lost := true, false; ; {
		items, version, err := list[T](ctx, c, path, "", "")
		if err == nil {
			for _, item := range items {
				f.Each(item, first)
			}
			if first && f.Listed != nil {
				f.Listed()
			}
			first, lost = false, false
			err = watch(ctx, c, path, version, func(item T) { f.Each(item, false) })
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errExpired):
			pause = 0
		case first || Refused(err):
			return err
		case !lost:
			lost = true
			f.Lost(err)
		}
		pause = min(max(2*pause, retryMin), retryMax)
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wait waits for d.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Refused reports whether err is an answer that will not change by itself.
func Refused(err error) bool {
	status := client.Status(err)
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests
}
