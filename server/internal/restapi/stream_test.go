package restapi_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const streamURL = "/api/v1/tenants/default/stream"

// lines reads a stream until it ends or n lines with content have come.
func lines(t *testing.T, url string, n int, header ...string) []string {
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
	defer resp.Body.Close()
	var out []string
	for scan := bufio.NewScanner(resp.Body); len(out) < n && scan.Scan(); {
		if scan.Text() != "" {
			out = append(out, scan.Text())
		}
	}
	return out
}

// covers: T7 (the change feed resumes from a cursor)
func TestStreamSendsChangesAfterTheCursor(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason, query string
		header        []string
		after         int64
	}{
		{"from now", "", nil, -1},
		{"from a cursor", "?after=41", nil, 41},
		{"a reconnect knows better than its URL", "?after=41", []string{"Last-Event-ID", "43"}, 43},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			after := make(chan int64, 1)
			srv := httptest.NewServer(restapi.New(config(), fake{
				follow: func(_ context.Context, _ string, from int64, fn func([]store.Change) error) error {
					after <- from
					return fn([]store.Change{{Seq: 44, Kind: store.ChangeStatus, ID: "tgt-1", AgentID: "agt-1", DeploymentID: "dep-1", At: born}, {Seq: 45, Kind: store.ChangeEvent}})
				},
			}))
			defer srv.Close()
			got := lines(t, srv.URL+streamURL+c.query, 100, c.header...)
			want := []string{
				": ready",
				"id: 44", "event: change", `data: {"seq":44,"kind":"status","id":"tgt-1","agentId":"agt-1","deploymentId":"dep-1","at":"2026-11-15T12:00:00Z"}`,
				"id: 45", "event: change", `data: {"seq":45,"kind":"event"}`,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if from := <-after; from != c.after {
				t.Errorf("followed from %d, want %d", from, c.after)
			}
		})
	}
}

// covers: T7 (a cursor that is too old is told, not skipped)
func TestStreamTellsOfALostCursorAndGoesOn(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(restapi.New(config(), fake{
		follow: func(_ context.Context, _ string, from int64, fn func([]store.Change) error) error {
			if from >= 0 {
				return control.ErrCursorLost
			}
			return fn([]store.Change{{Seq: 90, Kind: store.ChangeAgent}})
		},
	}))
	defer srv.Close()
	got := lines(t, srv.URL+streamURL+"?after=1", 100)
	if diff := cmp.Diff([]string{": ready", "event: reset", "data: {}", "id: 90"}, got[:4]); diff != "" {
		t.Error(diff)
	}
}

func TestStreamOfAnotherTenantIsRefused(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{follow: func(context.Context, string, int64, func([]store.Change) error) error { return store.ErrNotFound }})
	if got := do(t, h, "GET", streamURL, ""); got.status != 404 || !strings.Contains(got.detail(t), `tenant "default"`) {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

func TestIdleStreamWritesAComment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := restapi.New(config(), fake{
			follow: func(ctx context.Context, _ string, _ int64, fn func([]store.Change) error) error {
				if err := fn(nil); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, streamURL, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := strings.Count(w.Body.String(), ": still here\n\n"); got != 2 {
			t.Errorf("%d comments in 50 s, want 2: %q", got, w.Body.String())
		}
	})
}

// covers: T7
func TestStreamTellsOnlyOfTheKindsAskedFor(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(restapi.New(config(), fake{
		follow: func(_ context.Context, _ string, _ int64, fn func([]store.Change) error) error {
			if err := fn([]store.Change{{Seq: 1, Kind: store.ChangeStatus}, {Seq: 2, Kind: store.ChangeRun}, {Seq: 3, Kind: store.ChangeAgent}}); err != nil {
				return err
			}
			return fn([]store.Change{{Seq: 4, Kind: store.ChangeStatus}, {Seq: 5, Kind: store.ChangeStatus}})
		},
	}))
	defer srv.Close()
	got := lines(t, srv.URL+streamURL+"?kinds=run,agent", 100)
	want := []string{
		": ready",
		"id: 2", "event: change", `data: {"seq":2,"kind":"run"}`,
		"id: 3", "event: change", `data: {"seq":3,"kind":"agent"}`,
		"id: 5", // moves the cursor past what is not told
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	for reason, after := range map[string]func() (auth.Principal, error){
		"revoked":      func() (auth.Principal, error) { return auth.Principal{}, auth.ErrUnauthenticated },
		"another role": func() (auth.Principal, error) { return auth.Principal{Name: "admin"}, nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			var begun atomic.Bool
			h := restapi.New(config(), fake{
				identify: func(string) (auth.Principal, error) {
					if begun.Load() {
						return after()
					}
					return auth.Principal{Name: "admin", FleetAdmin: true}, nil
				},
				follow: func(ctx context.Context, _ string, _ int64, fn func([]store.Change) error) error {
					begun.Store(true)
					if err := fn(nil); err != nil {
						return err
					}
					<-ctx.Done()
					return nil
				},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, streamURL, nil)
			r.Header.Set("Authorization", "Bearer "+token)
			start := time.Now()
			h.ServeHTTP(httptest.NewRecorder(), r)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s: it ended after %s", reason, took)
			}
		})
	}
}

// However many streams a caller has open, and whenever they began, the database is asked once at a time.
func TestStreamsOfOneTokenAreCheckedTogether(t *testing.T) {
	t.Parallel()
	const streams = 20
	synctest.Test(t, func(t *testing.T) {
		var asked, revoked atomic.Int64
		h := restapi.New(config(), fake{
			identify: func(string) (auth.Principal, error) {
				asked.Add(1)
				if revoked.Load() > 0 {
					return auth.Principal{}, auth.ErrUnauthenticated
				}
				return auth.Principal{Name: "admin", FleetAdmin: true}, nil
			},
			follow: func(ctx context.Context, _ string, _ int64, fn func([]store.Change) error) error {
				if err := fn(nil); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var open sync.WaitGroup
		begin := func() {
			open.Go(func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, streamURL, nil)
				r.Header.Set("Authorization", "Bearer "+token)
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		for range streams {
			begin()
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(time.Minute)
		if got := asked.Load() - streams; got > 32 { // in 62 s, every 2 s
			t.Errorf("asked %d times in a minute for %d streams", got, streams)
		}
		revoked.Add(1)
		start := time.Now()
		open.Wait()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the last one ended after %s", took)
		}
		// Nobody asks once nothing is open.
		before := asked.Load()
		<-time.After(time.Minute)
		if got := asked.Load(); got != before {
			t.Errorf("asked %d times more", got-before)
		}
	})
}
