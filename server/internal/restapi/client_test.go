package restapi_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestClientIsWhoTheTrustedProxiesSay(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason, peer string
		forwarded    []string
		want         string
	}{
		{"a proxy appends its peer", "10.0.0.1:99", []string{"192.0.2.7"}, "192.0.2.7"},
		{"a client that forges hops before its own", "10.0.0.1:99", []string{"203.0.113.9, 192.0.2.7"}, "192.0.2.7"},
		{"a client that claims to be a proxy", "10.0.0.1:99", []string{"203.0.113.9, 10.0.0.5, 192.0.2.7"}, "192.0.2.7"},
		{"a client that sends the header itself", "192.0.2.7:99", []string{"203.0.113.9"}, "192.0.2.7:99"},
		{"a client without a proxy", "192.0.2.7:99", nil, "192.0.2.7:99"},
		{"two proxies in a row", "10.0.0.1:99", []string{"192.0.2.7, 10.0.0.2"}, "192.0.2.7"},
		{"a header for each of them", "10.0.0.1:99", []string{"203.0.113.9", "192.0.2.7", "10.0.0.2"}, "192.0.2.7"},
		{"nothing but proxies", "10.0.0.1:99", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"a proxy without the header", "10.0.0.1:99", nil, "10.0.0.1:99"},
		{"an invalid address ends the chain", "10.0.0.1:99", []string{"192.0.2.7, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"with ports", "10.0.0.1:99", []string{"192.0.2.7:1234"}, "192.0.2.7"},
		{"of IPv6", "[fd00::1]:99", []string{"[2001:db8::7]:1234"}, "2001:db8::7"},
		{"of IPv6 without a port", "[fd00::1]:99", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv4 in the clothes of IPv6", "[::ffff:10.0.0.1]:99", []string{"::ffff:192.0.2.7"}, "192.0.2.7"},
		{"a header without end", "10.0.0.1:99", []string{"192.0.2.7" + strings.Repeat(", 10.0.0.2", 1000)}, "10.0.0.2"},
	}
	f := newFixture(t)
	for i, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			cfg := config()
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
			h := restapi.New(cfg, f)
			name := fmt.Sprintf("tenant-%d", i)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/tenants", strings.NewReader(`{"name":"`+name+`"}`))
			r.Header.Set("Content-Type", "application/json")
			r.RemoteAddr = c.peer
			r.Header.Set("Authorization", "Bearer "+token)
			for _, text := range c.forwarded {
				r.Header.Add("X-Forwarded-For", text)
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			audit, err := f.Audit(t.Context(), admin, "", store.AuditFilter{Name: name, Limit: 10})
			if err != nil || len(audit) != 1 || audit[0].Address != c.want {
				t.Errorf("the audit log has %+v, %v, want %q", audit, err, c.want)
			}
			if got := log.String(); !strings.Contains(got, "address="+c.want) && !strings.Contains(got, `address="`+c.want) {
				t.Errorf("the log says %s", got)
			}
		})
	}
}

// Behind a load balancer, the limit for wrong tokens applies to each client, and the header cannot bypass it.
func TestGuessingBehindAProxyIsSlowedDownByClient(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.PerAddress = restapi.Rate{PerSecond: 0.001, Burst: 2}
	cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	h := restapi.New(cfg, newFixture(t))
	guess := func(peer, forwarded string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/whoami", nil)
		r.RemoteAddr = peer
		r.Header.Set("Authorization", "Bearer wrong")
		r.Header.Set("X-Forwarded-For", forwarded)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i, want := range []int{401, 401, 429} {
		if got := guess("10.0.0.1:1", "203.0.113."+string(rune('1'+i))+", 192.0.2.7"); got != want {
			t.Errorf("guess %d with made-up hops: got %d, want %d", i, got, want)
		}
	}
	if got := guess("10.0.0.2:1", "192.0.2.8"); got != 401 {
		t.Errorf("another client behind the proxy: got %d", got)
	}
	for i, want := range []int{401, 401, 429} {
		if got := guess("192.0.2.9:1", "203.0.113."+string(rune('1'+i))); got != want {
			t.Errorf("guess %d of a client that claims to be a proxy: got %d, want %d", i, got, want)
		}
	}
	for i, want := range []int{401, 401, 429} {
		if got := guess("10.0.0.1:1", "2001:db8::"+string(rune('1'+i))); got != want {
			t.Errorf("guess %d from one network of IPv6: got %d, want %d", i, got, want)
		}
	}
}
