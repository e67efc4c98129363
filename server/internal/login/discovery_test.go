package login_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/login"
)

// If a provider accepts connections and does not answer, all concurrent logins fail after one timeout, and a
// canceled login returns at once.
func TestUnresponsiveProviderDelaysAllLoginsOnce(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // connections wait in its backlog
	w := newTestServer(t, func(c *login.Config) { c.Issuer = "http://" + l.Addr().String() })
	first := make(chan struct{})
	go func() { // it sends the request, and waits
		defer close(first)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+loginPath, nil)
		if err != nil {
			return
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	conn, err := l.Accept() // the request has arrived
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+loginPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close()
	}
	const others = 5
	done := make(chan time.Duration, others)
	for range others {
		go func() {
			w.visit(t, newBrowser(t), "GET", loginPath, "")
			done <- time.Since(began)
		}()
	}
	for range others {
		// One timeout is 10 s. Sequential timeouts would take at least 50 s.
		if took := <-done; took > 40*time.Second {
			t.Errorf("the logins took %s with a provider that does not respond", took)
		}
	}
	<-first
}
