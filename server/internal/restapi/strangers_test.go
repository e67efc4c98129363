package restapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// A token that was good is let past the limit of its address. One that was revoked since is as good as a
// guess: it must not be a way around the limit, for itself or for others.
func TestARevokedTokenDoesNotEvadeTheLimitOfItsAddress(t *testing.T) {
	t.Parallel()
	good, looked := true, 0
	h, _, _ := gated(fake{standin: newStandin(), identify: func(string) (auth.Principal, error) {
		looked++
		if !good {
			return auth.Principal{}, auth.ErrUnauthenticated
		}
		return auth.Principal{Name: "x", TokenID: "t", FleetAdmin: true}, nil
	}})
	if got := from(t, h, "10.0.0.1:1", token); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	good, looked = false, 0
	for i, want := range []int{401, 401, 429, 429} {
		if got := from(t, h, "10.0.0.1:1", token); got.status != want {
			t.Errorf("try %d with a revoked token: got %d %s, want %d", i, got.status, got.body, want)
		}
	}
	if looked != 2 {
		t.Errorf("it was looked at %d times, want 2", looked)
	}
}

// stalled is the body of a request that says when it is first read, and then waits.
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

// hook sends a webhook whose body is given as it comes.
func hook(t *testing.T, h http.Handler, body io.Reader) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/hooks/rep-1", body)
	r.Header.Set("X-Kedge-Signature", sign(secret, "{}"))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// Anybody may send a webhook of some megabytes before its signature is known to be wrong: only so many are
// held at once, and who comes too many is not read at all.
func TestOnlySoManyWebhooksAreHeldAtOnce(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{
		secret: func(fleet.RepositoryID) (string, error) { return secret, nil },
		push:   func(fleet.RepositoryID, string) error { return nil },
	})
	const many = 64 // more than are held; what each of them may hold is 5 MiB
	reading, finish := make(chan struct{}, many), make(chan struct{})
	answers := make(chan answer, many)
	for range many {
		go func() {
			answers <- hook(t, h, &stalled{begun: func() { reading <- struct{}{} }, wait: finish, rest: strings.NewReader("{}")})
		}()
	}
	// Whoever was not turned away is being read, and stays so.
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
		t.Errorf("the places are not given back: got %d %s", got.status, got.body)
	}
}
