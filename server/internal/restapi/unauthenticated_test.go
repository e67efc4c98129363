package restapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// A token that was valid is admitted past the limit of its address. A revoked one counts like a wrong one: it
// must not bypass the limit, for itself or for others.
func TestARevokedTokenDoesNotEvadeTheLimitOfItsAddress(t *testing.T) {
	t.Parallel()
	var looked []string
	f := newFixture(t)
	h, _, _ := gated(record(f, "Authenticate", &looked))
	if got := from(t, h, "10.0.0.1:1", otherToken); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if err := f.RevokeAPIToken(t.Context(), admin, "default", "tok-other"); err != nil {
		t.Fatal(err)
	}
	looked = nil
	for i, want := range []int{401, 401, 429, 429} {
		if got := from(t, h, "10.0.0.1:1", otherToken); got.status != want {
			t.Errorf("try %d with a revoked token: got %d %s, want %d", i, got.status, got.body, want)
		}
	}
	if len(looked) != 2 {
		t.Errorf("it was looked at %d times, want 2", len(looked))
	}
}

// stalled is a request body that signals its first read and then waits.
type stalled struct {
	once  sync.Once
	begun func()
	wait  <-chan struct{}
	rest  io.Reader
}

func (s *stalled) Read(p []byte) (int, error) {
	s.once.Do(s.begun)
	<-s.wait
	return s.rest.Read(p)
}

// hook sends a webhook with a streamed body.
func hook(t *testing.T, h http.Handler, body io.Reader) answer {
	t.Helper()
	return hookFrom(t, h, "192.0.2.1:1", body)
}

func hookFrom(t *testing.T, h http.Handler, address string, body io.Reader) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/hooks/rep-1", body)
	r.RemoteAddr = address
	r.Header.Set("X-Kedge-Signature", sign(repoSecret, "{}"))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// Anyone may send a webhook of some megabytes before its signature is checked: the number of bodies in memory
// is limited, and further ones are not read at all.
func TestOnlySoManyWebhooksAreHeldAtOnce(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	const many = 64 // more than the limit; each may have 5 MiB
	reading, finish := make(chan struct{}, many), make(chan struct{})
	answers := make(chan answer, many)
	for i := range many {
		go func() {
			answers <- hookFrom(t, h, fmt.Sprintf("192.0.2.%d:1", i), &stalled{begun: func() { reading <- struct{}{} }, wait: finish, rest: strings.NewReader("{}")})
		}()
	}
	// All that were not refused are being read, and stay so.
	held, refused := 0, 0
	for held+refused < many {
		select {
		case <-reading:
			held++
		case got := <-answers:
			refused++
			if got.status != 429 || got.header.Get("Retry-After") == "" {
				t.Errorf("got %d %v %s", got.status, got.header, got.body)
			}
		}
	}
	if held != 32 {
		t.Errorf("%d bodies are held at once, want 32", held)
	}
	close(finish)
	for range held {
		if got := <-answers; got.status != 202 {
			t.Errorf("one that was held: got %d %s", got.status, got.body)
		}
	}
	if got := hook(t, h, strings.NewReader("{}")); got.status != 202 {
		t.Errorf("the places are not released: got %d %s", got.status, got.body)
	}
}

// A slow sender has its own places, and others are admitted; behind a proxy too.
func TestASlowSenderKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	server := httptest.NewServer(restapi.New(cfg, newFixture(t)))
	t.Cleanup(server.Close) // after the connections
	// begin sends everything except the body, and returns the response: 100 Continue when the server reads.
	begin := func(from string) (net.Conn, *bufio.Reader, string) {
		t.Helper()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /api/v1/hooks/rep-1 HTTP/1.1\r\nHost: kedge\r\nX-Forwarded-For: %s\r\nX-Kedge-Signature: %s\r\n"+
			"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n", from, sign(repoSecret, "{}"))
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(conn)
		line, err := answers.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return conn, answers, strings.Fields(line)[1]
	}
	held := map[string]int{}
	for range 40 { // more than there are places
		_, _, status := begin("192.0.2.7")
		held[status]++
	}
	if held["100"] != 8 || held["429"] != 32 {
		t.Errorf("of 40 that are slow: %v, want 8 that are read", held)
	}
	conn, answers, status := begin("192.0.2.8")
	if status != "100" {
		t.Fatalf("another address is answered %s", status)
	}
	if _, err := conn.Write([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := answers.ReadString('\n'); err != nil { // ends the answer to go on
		t.Fatal(err)
	}
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "202") {
		t.Errorf("another address got %q, %v", line, err)
	}
}

// A body that does not arrive holds a place as long as allowed: its address is responsible. A body that is only
// too large comes from a Git host.
func TestAWebhookThatDoesNotComeCountsAgainstItsAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, k := range []struct {
		reason string
		body   func() io.Reader
		after  int // what a good one gets then
	}{
		{"too slow", func() io.Reader { return iotest.ErrReader(os.ErrDeadlineExceeded) }, 429},
		{"gone in the middle", func() io.Reader { return iotest.ErrReader(io.ErrUnexpectedEOF) }, 429},
		{"too large", func() io.Reader { return strings.NewReader(strings.Repeat(" ", 5<<20+1)) }, 202},
	} {
		t.Run(k.reason, func(t *testing.T) {
			t.Parallel()
			h, _, _ := gated(f)
			for range 2 {
				if got := hook(t, h, k.body()); got.status != 413 {
					t.Errorf("got %d %s, want 413", got.status, got.body)
				}
			}
			if got := hook(t, h, strings.NewReader("{}")); got.status != k.after {
				t.Errorf("then a good one got %d %s, want %d", got.status, got.body, k.after)
			}
		})
	}
}
