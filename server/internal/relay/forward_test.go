package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/relay"
	"github.com/kedge-dev/kedge/server/internal/replicaapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var sharedKey = bytes.Repeat([]byte("k"), 32)

// newPair returns two servers: the agent is connected to the second one, and the requests of a test go to the first one.
func newPair(t *testing.T, cfg relay.Config, handler http.Handler) (front, back *bench, kill func()) {
	t.Helper()
	back = newBench(t, cfg, handler)
	address, kill := servePrivate(t, back, "srv-back", sharedKey)
	id, err := replicaapi.NewIdentity(sharedKey, "srv-front")
	if err != nil {
		t.Fatal(err)
	}
	client := replicaapi.NewClient(id)
	t.Cleanup(client.Close)
	cfg.Peers = client
	front = newBench(t, cfg, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the first server has no agent") }))
	front.set(func() {
		front.away, front.peers, front.servers = true, client, []fleet.ServerReplica{{ID: "srv-back", Address: address}}
	})
	return front, back, kill
}

// servePrivate serves the private API of a server.
func servePrivate(t *testing.T, b *bench, id string, key []byte) (address string, kill func()) {
	t.Helper()
	identity, err := replicaapi.NewIdentity(key, id)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := replicaapi.NewServer(l, identity, b.relay).Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	kill = func() { stop(); <-done }
	t.Cleanup(kill)
	return l.Addr().String(), kill
}

// open sends a request whose response is read by the caller.
func (b *bench) openRequest(ctx context.Context, t *testing.T, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.front.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// covers: P3
func TestRequestGoesToTheServerOfTheAgent(t *testing.T) {
	t.Parallel()
	front, back, _ := newPair(t, relay.Config{}, echo)
	for range 20 {
		resp, body := front.do(t, http.MethodGet, "/api/v1/pods?a=1", http.Header{"Authorization": {"Bearer secret"}})
		if resp.StatusCode != http.StatusOK || strings.Contains(body, "secret") || !strings.Contains(body, "/api/v1/pods?a=1") {
			t.Fatalf("%s: %s", resp.Status, body)
		}
	}
	front.mu.Lock()
	if front.lookups > 2 {
		t.Errorf("20 requests made %d look-ups", front.lookups)
	}
	front.mu.Unlock()
	back.mu.Lock()
	if len(back.callers) != 20 || back.callers[0].User != "kedge:person:ada" || back.callers[0].Request != "req-1" {
		t.Errorf("the agent saw %d callers: %+v", len(back.callers), back.callers)
	}
	if back.checks != 0 || len(back.recorded) != 0 {
		t.Errorf("the second server checked the access %d times and recorded %v", back.checks, back.recorded)
	}
	back.mu.Unlock()
	testkit.Eventually(t, 10*time.Second, func(context.Context) error {
		front.mu.Lock()
		defer front.mu.Unlock()
		if len(front.recorded) != 20 {
			return fmt.Errorf("the first server recorded %d requests", len(front.recorded))
		}
		return nil
	})
}

// covers: P3 (large bodies in both directions, through both windows)
func TestForwardedBodiesAreWhole(t *testing.T) {
	t.Parallel()
	front, _, _ := newPair(t, relay.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	}))
	sent := make([]byte, 5<<20)
	_, _ = rand.Read(sent)
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.front.URL+"/api/v1/namespaces/a/pods", bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("got %d of %d bytes, %v", len(got), len(sent), err)
		}
	}
}

// session begins a session whose connection the handler of the cluster gets.
func (b *bench) session(t *testing.T) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", b.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, "POST /api/v1/namespaces/a/pods/b/exec?command=cat HTTP/1.1\r\nHost: kedge\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	in := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	return conn.(*net.TCPConn), in
}

// hijack lets a function serve the connection of a request, after it has sent the beginning of a response.
func hijack(t *testing.T, response string, serve func(conn net.Conn, in io.Reader)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, response)
		serve(conn, buf)
	})
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"

// covers: P3 (half-close of a session)
func TestForwardedSessionIsHalfClosed(t *testing.T) {
	t.Parallel()
	front, _, _ := newPair(t, relay.Config{}, hijack(t, switching, func(conn net.Conn, in io.Reader) {
		all, err := io.ReadAll(in) // until the caller ends its direction
		_, _ = fmt.Fprintf(conn, "%d %v", len(all), err)
	}))
	conn, in := front.session(t)
	const size = 3 << 20
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(in); err != nil || string(got) != fmt.Sprintf("%d <nil>", size) {
		t.Errorf("got %q, %v", got, err)
	}
}

// covers: P3 (a lost connection between servers is no end of the input)
func TestLostServerIsNoEndOfTheInput(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	front, _, _ := newPair(t, relay.Config{}, hijack(t, switching, func(_ net.Conn, in io.Reader) {
		_, err := io.Copy(io.Discard, in)
		got <- err
	}))
	conn, _ := front.session(t)
	if _, err := io.WriteString(conn, "half of"); err != nil {
		t.Fatal(err)
	}
	front.peers.Close()
	if err := <-got; err == nil {
		t.Error("the input ended as if it were complete")
	}
}

// covers: P3 (a lost agent is no end of a response, even if only the end of the connection ends it)
func TestLostAgentIsNoEndOfAForwardedResponse(t *testing.T) {
	t.Parallel()
	front, back, _ := newPair(t, relay.Config{}, hijack(t, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf of", func(_ net.Conn, in io.Reader) {
		_, _ = io.Copy(io.Discard, in)
	}))
	resp := front.openRequest(t.Context(), t, "/api/v1/pods?watch=1")
	half := make([]byte, len("half of"))
	if _, err := io.ReadFull(resp.Body, half); err != nil {
		t.Fatal(err)
	}
	back.set(func() { back.abort[0]() })
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the response ended as if it were complete")
	}
}

// covers: P3 (cancellation)
func TestForwardedRequestEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(front *bench, cancel func()){
		"CallerGoes": func(_ *bench, cancel func()) { cancel() },
		"AccessEnds": func(front *bench, _ func()) {
			front.set(func() { front.denied = &control.AccessError{Message: "no rule"} })
		},
		"AgentIsLost": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, ended := make(chan struct{}), make(chan struct{})
			front, back, _ := newPair(t, relay.Config{CheckEvery: 10 * time.Millisecond}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				close(began)
				<-r.Context().Done()
				close(ended)
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			resp := front.openRequest(ctx, t, "/api/v1/pods?watch=1")
			<-began
			if end == nil {
				back.set(func() { back.abort[0]() })
			} else {
				end(front, cancel)
			}
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("the response ended without an error")
			}
			<-ended
		})
	}
}

// covers: P3 (the death of a replica loses only what it carried)
func TestDeadServerLosesOnlyWhatItCarried(t *testing.T) {
	t.Parallel()
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if r.URL.Query().Has("watch") {
			<-r.Context().Done()
		}
	})
	front, _, kill := newPair(t, relay.Config{}, slow)
	other := newBench(t, relay.Config{}, slow)
	otherAddress, _ := servePrivate(t, other, "srv-other", sharedKey)
	lost := front.openRequest(t.Context(), t, "/api/v1/pods?watch=1")
	kill()
	if _, err := io.ReadAll(lost.Body); err == nil {
		t.Error("the watch ended without an error")
	}
	resp, body := front.do(t, http.MethodGet, "/api/v1/pods", nil)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "does not respond") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %s", resp.Status, body)
	}
	// The agent connects to a third server.
	front.set(func() { front.servers = []fleet.ServerReplica{{ID: "srv-other", Address: otherAddress}} })
	front.changes <- []store.Change{{Kind: store.ChangeConnection, AgentID: paris.ID}}
	if resp, body := front.do(t, http.MethodGet, "/api/v1/pods", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

// covers: P3 (without a notice from the change feed)
func TestAgentThatMovedIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	front, back, _ := newPair(t, relay.Config{}, echo)
	other := newBench(t, relay.Config{}, echo)
	otherAddress, _ := servePrivate(t, other, "srv-other", sharedKey)
	if resp, body := front.do(t, http.MethodGet, "/api/v1/pods", nil); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	found := time.Now()
	back.set(func() { back.away = true })
	front.set(func() { front.servers = []fleet.ServerReplica{{ID: "srv-other", Address: otherAddress}} })
	for range 10 { // the unused tunnels of the old connection
		front.do(t, http.MethodGet, "/api/v1/pods", nil)
	}
	testkit.Eventually(t, 10*time.Second, func(context.Context) error { // what was found is believed for a moment
		if time.Since(found) < 500*time.Millisecond {
			return errors.New("too early")
		}
		return nil
	})
	if resp, body := front.do(t, http.MethodGet, "/api/v1/pods", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", resp.Status, body)
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if len(other.callers) == 0 {
		t.Error("no request reached the agent at its new server")
	}
}

// covers: P3 (a thousand requests for an absent agent make no thousand queries)
func TestAbsentAgentIsAnsweredWithoutQueries(t *testing.T) {
	t.Parallel()
	front, _, _ := newPair(t, relay.Config{}, echo)
	front.set(func() { front.servers = nil })
	started := time.Now()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 100 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.front.URL+"/api/v1/pods", nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				var status struct{ Kind, Message string }
				err = json.NewDecoder(resp.Body).Decode(&status)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusServiceUnavailable || status.Kind != "Status" || !strings.Contains(status.Message, `agent "paris" is not connected`) {
					t.Errorf("%s: %+v, %v", resp.Status, status, err)
					return
				}
			}
		})
	}
	all.Wait()
	seconds := int(time.Since(started).Seconds()) + 1
	front.mu.Lock()
	if front.lookups > 2*seconds || front.checks > 20*seconds { // 10 at once, and each may expire once in a second
		t.Errorf("1000 requests in %d s made %d look-ups and %d checks of access", seconds, front.lookups, front.checks)
	}
	front.mu.Unlock()
	// A connection ends the absence at once.
	front.set(func() { front.away, front.handler = false, echo })
	front.changes <- []store.Change{{Kind: store.ChangeConnection, AgentID: paris.ID}}
	if resp, body := front.do(t, http.MethodGet, "/api/v1/pods", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

// TestAbsenceAllowsNothing: an answer from memory is never more than that the agent is not connected.
func TestAbsenceAllowsNothing(t *testing.T) {
	t.Parallel()
	front, _, _ := newPair(t, relay.Config{}, echo)
	front.set(func() { front.servers = nil })
	front.do(t, http.MethodGet, "/api/v1/pods", nil)
	front.set(func() { front.denied = &control.AccessError{Message: "no rule"} })
	// Another caller, and the same one after the time has passed, are refused.
	if resp, body := front.do(t, http.MethodGet, "/api/v1/pods", http.Header{"Authorization": {"another"}}); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s: %s", resp.Status, body)
	}
	testkit.Eventually(t, 10*time.Second, func(context.Context) error {
		resp, body := front.do(t, http.MethodGet, "/api/v1/pods", nil)
		if resp.StatusCode != http.StatusForbidden {
			return fmt.Errorf("%s: %s", resp.Status, body)
		}
		return nil
	})
}

func TestForwardingThatFails(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(front, back *bench)
		cfg    relay.Config
		code   int
		says   string
	}{
		"NotThere":      {change: func(_, back *bench) { back.away = true }, code: 503, says: "is not connected"},
		"NoAddress":     {change: func(front, _ *bench) { front.servers[0].Address = "" }, code: 503, says: "--private-listen"},
		"AnotherServer": {change: func(front, _ *bench) { front.servers[0].ID = "srv-former" }, code: 503, says: "does not respond"},
		"Refused":       {change: func(front, _ *bench) { front.servers[0].Address = "127.0.0.1:1" }, code: 503, says: "does not respond"},
		"DatabaseAway":  {change: func(front, _ *bench) { front.lost = errors.New("connection refused") }, code: 503, says: "try again"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front, back, _ := newPair(t, tc.cfg, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request reached the cluster") }))
			back.mu.Lock()
			front.set(func() { tc.change(front, back) })
			back.mu.Unlock()
			if resp, body := front.do(t, http.MethodGet, "/api/v1/pods", nil); resp.StatusCode != tc.code || !strings.Contains(body, tc.says) || resp.Header.Get("Kedge-Origin") != "kedge" {
				t.Errorf("%s: %s", resp.Status, body)
			}
		})
	}
}

// TestForwardedRequestsAreLimited: the server of the agent limits the requests of all servers together.
func TestForwardedRequestsAreLimited(t *testing.T) {
	t.Parallel()
	back := newBench(t, relay.Config{Limits: relay.Limits{PerCaller: 1, PerAgent: 2, PerTenant: 10, Total: 10}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if r.URL.Query().Has("watch") {
			<-r.Context().Done()
		}
	}))
	address, _ := servePrivate(t, back, "srv-back", sharedKey)
	id, err := replicaapi.NewIdentity(sharedKey, "srv-front")
	if err != nil {
		t.Fatal(err)
	}
	client := replicaapi.NewClient(id)
	t.Cleanup(client.Close)
	front := newBench(t, relay.Config{Peers: client}, echo)
	front.set(func() { front.away, front.servers = true, []fleet.ServerReplica{{ID: "srv-back", Address: address}} })
	for range 2 {
		if resp := front.openRequest(t.Context(), t, "/api/v1/pods?watch=1"); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	if resp, body := front.do(t, http.MethodGet, "/api/v1/pods", nil); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%s: %s", resp.Status, body)
	}
}
