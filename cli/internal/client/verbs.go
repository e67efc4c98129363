package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// In is the path of something below the tenant.
func (c *Client) In(parts ...string) string {
	return c.Top(append([]string{"tenants", c.cfg.Tenant}, parts...)...)
}

// Top is the path of something that belongs to no tenant.
func (c *Client) Top(parts ...string) string {
	path := "/api/v1"
	for _, p := range parts {
		path += "/" + url.PathEscape(p)
	}
	return path
}

// Get reads one thing.
func Get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var out T
	err := c.call(ctx, http.MethodGet, path, nil, nil, &out)
	return out, err
}

// List reads a listing, page by page: all of it, or at least the first most items.
func List[T any](ctx context.Context, c *Client, path string, query url.Values, most int) ([]T, error) {
	q := url.Values{}
	for name, values := range query {
		q[name] = values
	}
	all := []T{}
	for {
		var page apiv1.List[T]
		if err := c.call(ctx, http.MethodGet, path, q, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		// A server that repeats itself must not keep us here.
		if page.Next == "" || page.Next == q.Get("after") || (most > 0 && len(all) >= most) {
			return all, nil
		}
		q.Set("after", page.Next)
	}
}

// Send asks for a change and reads the answer.
func Send[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	err := c.call(ctx, method, path, nil, body, &out)
	return out, err
}

// Do asks for a change that has no answer worth reading.
func Do(ctx context.Context, c *Client, method, path string, body any) error {
	return c.call(ctx, method, path, nil, body, nil)
}
