package restapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// open starts a GET that the server holds, and returns its response header.
func open(t *testing.T, url, token string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func isRefused(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != ""
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	cfg := config()
	cfg.Metrics, cfg.Streams = reg, restapi.HeldLimit{PerToken: 2, PerTenant: 3, Total: 4}
	f := newFixture(t)
	_, third, err := f.CreateAPIToken(t.Context(), admin, "", control.CreateAPIToken{Name: "third", Role: fleet.RoleFleetAdmin})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(restapi.New(cfg, f))
	t.Cleanup(srv.Close) // after the streams, which end with the test
	stream := func(token, tenant string) *http.Response {
		return open(t, srv.URL+"/api/v1/tenants/"+tenant+"/stream", token)
	}
	steps := []struct {
		reason, token, tenant string
		refused               bool
	}{
		{"the first of token a", token, "default", false},
		{"the second of token a", token, "default", false},
		{"token a has its two", token, "shop", true},
		{"token b is another", "kedge-api-spare", "default", false},
		{"tenant default has its three", "kedge-api-spare", "default", true},
		{"tenant shop is another", "kedge-api-spare", "shop", false},
		{"the server has its four", third, "empty", true},
	}
	opened := map[string]*http.Response{}
	for _, s := range steps {
		resp := stream(s.token, s.tenant)
		if isRefused(resp) != s.refused {
			t.Errorf("%s: got %d %v", s.reason, resp.StatusCode, resp.Header)
		}
		if !s.refused {
			opened[s.reason] = resp
		}
	}
	opened["the first of token a"].Body.Close()
	testkit.Eventually(t, 10*time.Second, func(context.Context) error {
		if resp := stream(third, "empty"); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("a stream has ended, and another is refused: %d", resp.StatusCode)
		}
		return nil
	})
	if text := scrape(t, reg); !strings.Contains(text, `kedge_rest_refused_total{by="stream"}`) {
		t.Error("refused streams are not counted")
	}
}

func TestWaitingPollsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.LongPolls = restapi.HeldLimit{PerToken: 1, PerTenant: 9, Total: 9}
		began, end := make(chan struct{}), make(chan struct{})
		h := restapi.New(cfg, intercept(newFixture(t), "WaitApplications", func(time.Duration) error {
			began <- struct{}{}
			<-end
			return nil
		}))
		have := append([]string{"If-None-Match", do(t, h, "GET", cluster+"applications", "", asAgent...).header.Get("ETag")}, asAgent...)
		poll := func() answer { return do(t, h, "GET", cluster+"applications?wait=30s", "", have...) }
		first := make(chan answer, 1)
		go func() { first <- poll() }()
		<-began
		got := poll()
		if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "waiting polls") {
			t.Errorf("the second poll of an agent: got %d %v %s", got.status, got.header, got.body)
		}
		if got := do(t, h, "GET", cluster+"applications", "", have...); got.status != http.StatusNotModified {
			t.Errorf("a poll that does not wait is refused too: got %d %s", got.status, got.body)
		}
		end <- struct{}{}
		if got := <-first; got.status != http.StatusNotModified {
			t.Errorf("the first poll: got %d %s", got.status, got.body)
		}
		go func() { first <- poll() }()
		<-began
		close(end)
		if got := <-first; got.status != http.StatusNotModified {
			t.Errorf("a poll after the first has ended: got %d %s", got.status, got.body)
		}
	})
}
