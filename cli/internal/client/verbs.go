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

// GetTagged reads one thing and its ETag, which is empty when it has none.
func GetTagged[T any](ctx context.Context, c *Client, path string) (T, string, error) {
	var out T
	text, tag, err := c.doMatching(ctx, http.MethodGet, path, nil, nil, "")
	if err != nil {
		return out, "", err
	}
	return out, tag, c.decode(text, &out)
}

// DoMatching asks for a change of what still has the ETag match, and returns the new ETag. An empty match fits always.
func DoMatching(ctx context.Context, c *Client, method, path string, body any, match string) (string, error) {
	_, tag, err := c.doMatching(ctx, method, path, nil, body, match)
	return tag, err
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
