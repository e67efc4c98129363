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

// TestProxyForwardsOnlyRequestsOfItsRuns sends requests as another program on this machine could.
func TestProxyForwardsOnlyRequestsOfItsRuns(t *testing.T) {
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
	connection := p.open(target, uploadPack)
	conn, err := url.Parse(connection.config[0].value)
	if err != nil {
		t.Fatal(err)
	}
	otherProxy := *conn
	otherProxy.User = url.UserPassword(proxyUser, "guess")
	anonymous := *conn
	anonymous.User = nil
	refs := "http://else.example.com/other.git/info/refs?service=git-upload-pack"
	tests := []struct {
		reason      string
		proxy       *url.URL
		method, url string
		want        string // the request at the remote; "" for none
	}{
		{"the destination of git is ignored", conn, "GET", refs, "GET /org/repo.git/info/refs?service=git-upload-pack "},
		{"a fetch", conn, "POST", "http://x/git-upload-pack", "POST /org/repo.git/git-upload-pack "},
		{"a push", conn, "POST", "http://x/git-receive-pack", ""},
		{"the refs for a push", conn, "GET", "http://x/info/refs?service=git-receive-pack", ""},
		{"files of the dumb protocol", conn, "GET", "http://x/objects/info/http-alternates", ""},
		{"another method", conn, "PUT", "http://x/git-upload-pack", ""},
		{"a guess", &otherProxy, "GET", refs, ""},
		{"no secret", &anonymous, "GET", refs, ""},
		{"a tunnel", conn, "GET", "https://x/info/refs?service=git-upload-pack", ""},
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
		answered := requests.Load() - before
		if tt.want == "" && (answered != 0 || err == nil && response.StatusCode == http.StatusOK) {
			t.Errorf("%s was forwarded: %v", tt.reason, last.Load())
		}
		if tt.want != "" && (answered != 1 || last.Load() != tt.want) {
			t.Errorf("%s: the remote received %d requests, the last one is %q, want %q", tt.reason, answered, last.Load(), tt.want)
		}
	}
	connection.close()
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(conn), DisableKeepAlives: true}}
	if response, err := client.Get(refs); err != nil || response.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("after the run: %v, %v", response, err)
	}
}
