package gitsource

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// TestTheProxyCarriesFetchesOfItsRunsAlone asks as other programs of this machine could.
func TestTheProxyCarriesFetchesOfItsRunsAlone(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	var last atomic.Value
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		last.Store(r.Method + " " + r.URL.String() + " " + r.Header.Get("Cookie"))
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
	}))
	defer remote.Close()
	p, err := newProxy(http.DefaultTransport, &egress.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.close() })
	target, err := url.Parse(remote.URL + "/org/repo.git")
	if err != nil {
		t.Fatal(err)
	}
	passage := p.open(target, uploadPack)
	through, err := url.Parse(passage.config[0].value)
	if err != nil {
		t.Fatal(err)
	}
	stranger := *through
	stranger.User = url.UserPassword(proxyUser, "guess")
	nobody := *through
	nobody.User = nil
	refs := "http://else.example.com/other.git/info/refs?service=git-upload-pack"
	tests := []struct {
		reason      string
		proxy       *url.URL
		method, url string
		want        string // at the remote; "" when it is not asked
	}{
		{"where git asks does not matter", through, "GET", refs, "GET /org/repo.git/info/refs?service=git-upload-pack "},
		{"fetching", through, "POST", "http://x/git-upload-pack", "POST /org/repo.git/git-upload-pack "},
		{"pushing", through, "POST", "http://x/git-receive-pack", ""},
		{"asking to push", through, "GET", "http://x/info/refs?service=git-receive-pack", ""},
		{"files of a server that knows no Git", through, "GET", "http://x/objects/info/http-alternates", ""},
		{"another method", through, "PUT", "http://x/git-upload-pack", ""},
		{"a guess", &stranger, "GET", refs, ""},
		{"no secret", &nobody, "GET", refs, ""},
		{"a tunnel", through, "GET", "https://x/info/refs?service=git-upload-pack", ""},
	}
	for _, tt := range tests {
		before := requests.Load()
		client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(tt.proxy), DisableKeepAlives: true}}
		request, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, strings.NewReader("0000"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Cookie", "private")
		response, err := client.Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		asked := requests.Load() - before
		if tt.want == "" && (asked != 0 || err == nil && response.StatusCode == http.StatusOK) {
			t.Errorf("%s was forwarded: %v", tt.reason, last.Load())
		}
		if tt.want != "" && (asked != 1 || last.Load() != tt.want) {
			t.Errorf("%s: the remote was asked %d times, at last %q, want %q", tt.reason, asked, last.Load(), tt.want)
		}
	}
	passage.close()
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(through), DisableKeepAlives: true}}
	if response, err := client.Get(refs); err != nil || response.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("after the run: %v, %v", response, err)
	}
}
