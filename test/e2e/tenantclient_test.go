package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// tenantClient calls the API of a server in one tenant, with a token.
type tenantClient struct {
	*rig.Server
	tenant string
}

// tenantClient returns the client of the fleet admin in a tenant. It creates the tenant unless it is the default one.
func (s *testServer) tenantClient(tb testing.TB, tenant string) tenantClient {
	tb.Helper()
	if tenant != "default" {
		s.call(tb, http.MethodPost, "/tenants", apiv1.CreateTenant{Name: tenant}, nil)
	}
	return tenantClient{Server: s.Server, tenant: tenant}
}

// path returns the path of a resource of the tenant; a path with /api/v1 is complete, like a Location, and one
// with a slash belongs to no tenant.
func (d tenantClient) path(rest string) string {
	if whole, ok := strings.CutPrefix(rest, "/api/v1"); ok {
		return whole
	}
	if strings.HasPrefix(rest, "/") {
		return rest
	}
	return "/tenants/" + d.tenant + "/" + rest
}

// ask sends a request, with headers in pairs, and returns any response.
func (d tenantClient) ask(tb testing.TB, method, path string, body any, headers ...string) rig.Answer {
	tb.Helper()
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	answer, err := d.Ask(tb.Context(), method, d.path(path), h, body)
	if err != nil {
		tb.Fatal(err)
	}
	return answer
}

// want is ask for a response with a status; anything else ends the test.
func (d tenantClient) want(tb testing.TB, code int, method, path string, body any, headers ...string) rig.Answer {
	tb.Helper()
	answer := d.ask(tb, method, path, body, headers...)
	if answer.Code != code {
		tb.Fatalf("%s %s answers %d, not %d: %s", method, path, answer.Code, code, answer.Body)
	}
	return answer
}

// role returns a client with an API token of that role in the same tenant.
func (d tenantClient) role(tb testing.TB, role string) tenantClient {
	tb.Helper()
	made := decode[apiv1.NewAPIToken](tb, d.want(tb, 201, "POST", "tokens", apiv1.CreateAPIToken{Name: role, Role: role}))
	return tenantClient{Server: d.As(made.Token), tenant: d.tenant}
}

// decode reads the JSON of an answer.
func decode[T any](tb testing.TB, a rig.Answer) T {
	tb.Helper()
	var out T
	if err := json.Unmarshal(a.Body, &out); err != nil {
		tb.Fatalf("the answer %q is not what it should be: %v", a.Body, err)
	}
	return out
}

// get reads one thing of a tenant.
func get[T any](tb testing.TB, d tenantClient, path string) T {
	tb.Helper()
	return decode[T](tb, d.want(tb, 200, "GET", path, nil))
}

// all reads a listing, page by page. It fails the test if a page is longer than requested or repeats an item.
func all[T any](tb testing.TB, d tenantClient, path string, limit string, key func(T) string) []T {
	tb.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	var out []T
	seen := map[string]bool{}
	for after, pages := "", 0; ; pages++ {
		page := get[apiv1.List[T]](tb, d, path+join+"limit="+limit+"&after="+after)
		for _, item := range page.Items {
			if seen[key(item)] || pages > 100 {
				tb.Fatalf("GET %s lists %s twice", path, key(item))
			}
			seen[key(item)] = true
		}
		out = append(out, page.Items...)
		if after = page.Next; after == "" {
			return out
		}
	}
}

// awaitCode waits until a GET returns a status.
func awaitCode(tb testing.TB, d tenantClient, code int, path string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		answer, err := d.Ask(ctx, "GET", d.path(path), nil, nil)
		if err == nil && answer.Code != code {
			err = fmt.Errorf("GET %s answers %d: %s", path, answer.Code, answer.Body)
		}
		return err
	})
}
