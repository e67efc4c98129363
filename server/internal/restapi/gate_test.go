package restapi_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// from makes a request from an address.
func from(t *testing.T, h http.Handler, address, token string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/whoami", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// gated is an API with a fake clock.
func gated(c restapi.Control) (http.Handler, *atomic.Int64, *prometheus.Registry) {
	cfg := config()
	clock := &atomic.Int64{}
	cfg.Now = func() time.Time { return born.Add(time.Duration(clock.Load())) }
	cfg.PerCaller = restapi.Rate{PerSecond: 2, Burst: 3}
	cfg.PerAddress = restapi.Rate{PerSecond: 1, Burst: 2}
	reg := prometheus.NewRegistry()
	cfg.Metrics = reg
	return restapi.New(cfg, c), clock, reg
}

// covers: T6 (429 is a problem document that says when to come back)
func TestCallerIsSlowedDownAloneAndCounted(t *testing.T) {
	t.Parallel()
	h, clock, reg := gated(newFixture(t))
	for range 3 {
		if got := from(t, h, "10.0.0.1:1", token); got.status != 200 {
			t.Fatalf("got %d %s", got.status, got.body)
		}
	}
	got := from(t, h, "10.0.0.1:1", token)
	if got.status != 429 || got.header.Get("Retry-After") != "1" || got.detail(t) == "" {
		t.Errorf("got %d %v %s", got.status, got.header, got.body)
	}
	if got := from(t, h, "10.0.0.1:1", otherToken); got.status != 200 {
		t.Errorf("another token is slowed down too: %d %s", got.status, got.body)
	}
	clock.Add(int64(time.Second))
	statuses := map[int]int{}
	for range 3 {
		statuses[from(t, h, "10.0.0.1:1", token).status]++
	}
	if statuses[200] != 2 || statuses[429] != 1 {
		t.Errorf("a second later, at two a second: %v", statuses)
	}
	if text := scrape(t, reg); !strings.Contains(text, `kedge_rest_refused_total{by="caller"} 2`) {
		t.Errorf("the refusals are not counted:\n%s", text)
	}
}

// scrape returns the metrics.
func scrape(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}

func TestGuessingIsSlowedDownByAddress(t *testing.T) {
	t.Parallel()
	var looked []string
	h, clock, _ := gated(record(newFixture(t), "Authenticate", &looked))
	from(t, h, "10.0.0.1:1", otherToken) // known from before
	looked = nil
	for i, want := range []int{401, 401, 429, 429} {
		got := from(t, h, "10.0.0.1:"+strconv.Itoa(i+1), "wrong")
		if got.status != want || (want == 429) != (got.header.Get("Retry-After") != "") {
			t.Errorf("guess %d: got %d %s, want %d", i, got.status, got.body, want)
		}
	}
	if len(looked) != 2 {
		t.Errorf("%d tokens were looked at, want 2", len(looked))
	}
	if got := from(t, h, "10.0.0.1:9", token); got.status != 429 {
		t.Errorf("the right guess after too many wrong ones: got %d", got.status)
	}
	if got := from(t, h, "10.0.0.1:9", otherToken); got.status != 200 {
		t.Errorf("a token that was valid recently is locked out by its neighbor: got %d %s", got.status, got.body)
	}
	if got := from(t, h, "10.0.0.2:9", token); got.status != 200 {
		t.Errorf("another address: got %d %s", got.status, got.body)
	}
	clock.Add(int64(time.Second))
	if got := from(t, h, "10.0.0.1:9", token); got.status != 200 {
		t.Errorf("a second later: got %d %s", got.status, got.body)
	}
}

func TestOneNetworkOfIPv6IsOneAddress(t *testing.T) {
	t.Parallel()
	h, _, _ := gated(newFixture(t))
	for i := range 2 {
		from(t, h, "[2001:db8::"+strconv.Itoa(i)+"]:1", "wrong")
	}
	if got := from(t, h, "[2001:db8::beef]:1", "wrong"); got.status != 429 {
		t.Errorf("a neighbour: got %d", got.status)
	}
	if got := from(t, h, "[2001:db8:0:1::1]:1", "wrong"); got.status != 401 {
		t.Errorf("another network: got %d", got.status)
	}
}

func TestWrongSignaturesAreSlowedDownByAddress(t *testing.T) {
	t.Parallel()
	var looked []fleet.RepositoryID
	h, _, _ := gated(record(newFixture(t), "WebhookSecret", &looked))
	for i, want := range []int{401, 401, 429} {
		if got := do(t, h, "POST", "/api/v1/hooks/rep-1", "{}", "X-Kedge-Signature", sign("x", "{}")); got.status != want {
			t.Errorf("try %d: got %d %s, want %d", i, got.status, got.body, want)
		}
	}
	if len(looked) != 2 {
		t.Errorf("%d secrets were looked up, want 2", len(looked))
	}
}
