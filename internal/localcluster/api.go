package localcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// apiClient sends the few requests that a start needs. A Kubernetes client library would add 20 MB to every
// program that contains the demo.
type apiClient struct {
	url  string
	http *http.Client
}

func newAPIClient(c *Cluster) (*apiClient, error) {
	config, err := c.pki.clientTLS(adminUser)
	if err != nil {
		return nil, err
	}
	return &apiClient{url: c.URL(), http: &http.Client{
		// No proxy from the environment: the server is on this machine.
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true},
		Timeout:   10 * time.Second,
	}}, nil
}

func (a *apiClient) close() { a.http.CloseIdleConnections() }

// do sends a request and decodes the response into out, unless out is nil.
func (a *apiClient) do(ctx context.Context, method, path string, body, out any) error {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encoding a request to %s: %w", path, err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, content)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := a.http.Do(req)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 10<<20))
	if err != nil {
		return fmt.Errorf("reading the answer to %s: %w", path, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("asking for %s: %s: %s", path, res.Status, strings.TrimSpace(string(answer)))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("decoding the answer to %s: %w", path, err)
	}
	return nil
}

// until repeats check until it returns nil. A starting program sends no event to wait for.
func until(ctx context.Context, check func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func (a *apiClient) ready(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) error {
		return a.do(ctx, http.MethodGet, "/readyz", nil, nil)
	})
}

// accountsServed waits until pods can be created in the default namespace: they need its
// ServiceAccount and the certificate that is mounted with its token.
func (a *apiClient) accountsServed(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) error {
		const namespace = "/api/v1/namespaces/default"
		if err := a.do(ctx, http.MethodGet, namespace+"/serviceaccounts/default", nil, nil); err != nil {
			return err
		}
		return a.do(ctx, http.MethodGet, namespace+"/configmaps/kube-root-ca.crt", nil, nil)
	})
}

func (c *Cluster) startNodes(ctx context.Context) error {
	for i := range c.cfg.Nodes {
		if err := c.api.do(ctx, http.MethodPost, "/api/v1/nodes", node(fmt.Sprintf("node-%d", i)), nil); err != nil {
			return fmt.Errorf("creating node %d: %w", i, err)
		}
	}
	return until(ctx, c.api.nodesReady)
}

func node(name string) any {
	type object = map[string]any
	return object{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata": object{"name": name, "labels": object{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "kwok",
		}},
	}
}

func (a *apiClient) nodesReady(ctx context.Context) error {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Taints []struct{ Key string } }
		}
	}
	if err := a.do(ctx, http.MethodGet, "/api/v1/nodes", nil, &list); err != nil {
		return err
	}
	for _, n := range list.Items {
		// The node controller removes the taint when it sees that the node is ready.
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("node %s is not ready", n.Metadata.Name)
		}
	}
	return nil
}
