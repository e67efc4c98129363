package restapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const streamURL = "/api/v1/tenants/default/stream"

// covers: T7 (the change feed resumes from a cursor)
func TestStreamSendsChangesAfterTheCursor(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		query  func(old, cursor int64) string
		header func(cursor int64) []string
	}{
		{"from now", func(int64, int64) string { return "" }, nil},
		{"from a cursor", func(_, cursor int64) string { return fmt.Sprintf("?after=%d", cursor) }, nil},
		{"Last-Event-ID takes precedence over the URL", func(old, _ int64) string { return fmt.Sprintf("?after=%d", old) },
			func(cursor int64) []string { return []string{"Last-Event-ID", fmt.Sprint(cursor)} }},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			s := newStreamed(t)
			old := s.lastChange(t)
			s.write(t, event)
			cursor := s.lastChange(t)
			var header []string
			if c.header != nil {
				header = c.header(cursor)
			}
			fromNow := c.query(old, cursor) == ""
			if !fromNow {
				s.write(t, status("one"), event)
			}
			read := s.reader(t, c.query(old, cursor), header...)
			if diff := cmp.Diff([]string{": ready"}, read(1)); diff != "" {
				t.Error(diff)
			}
			if fromNow {
				s.write(t, status("one"), event)
			}
			if diff := cmp.Diff(s.written(t, cursor, store.ChangeStatus, store.ChangeEvent), read(6)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// covers: T7 (a cursor that is too old is told, not skipped)
func TestStreamTellsOfALostCursorAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newStreamed(t)
	s.write(t, func(ctx context.Context, tx store.Tx) error { return tx.Changes().Trim(ctx, 1) })
	read := s.reader(t, "?after=1")
	if diff := cmp.Diff([]string{": ready", "event: reset", "data: {}"}, read(3)); diff != "" {
		t.Error(diff)
	}
	cursor := s.lastChange(t)
	s.write(t, event)
	if diff := cmp.Diff(s.written(t, cursor, store.ChangeEvent), read(3)); diff != "" {
		t.Error(diff)
	}
}

// lostCursor is the control with a stream whose cursor is lost. atFollow is called when the stream starts again.
type lostCursor struct {
	ending
	atFollow func()
}

func (l lostCursor) Follow(ctx context.Context, p auth.Principal, tenant string, after int64, fn func([]store.Change) error) error {
	if after >= 0 {
		return control.ErrCursorLost
	}
	l.atFollow()
	return l.ending.Follow(ctx, p, tenant, after, fn)
}

// A caller reads everything again after the reset. A change between that read and the new position would be lost.
func TestResetIsReportedAfterTheNewPositionIsFixed(t *testing.T) {
	t.Parallel()
	w, early := httptest.NewRecorder(), false
	h := restapi.New(config(), lostCursor{ending{newFixture(t).Service}, func() { early = strings.Contains(w.Body.String(), "reset") }})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, streamURL+"?after=1", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	h.ServeHTTP(w, r)
	if early || !strings.Contains(w.Body.String(), "event: reset") {
		t.Errorf("reset was reported before the position was fixed: %t; the stream was %q", early, w.Body)
	}
}

func TestStreamOfAnotherTenantIsRefused(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	for tenant, given := range map[string]string{"nobody": token, "shop": otherToken} {
		got := do(t, h, "GET", "/api/v1/tenants/"+tenant+"/stream", "", "Authorization", "Bearer "+given)
		if got.status != 404 || !strings.Contains(got.detail(t), `tenant "`+tenant+`"`) {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
}

// serveStream requests the stream of the tenant default, and returns the response when it ends.
func serveStream(ctx context.Context, h http.Handler, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, streamURL, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestIdleStreamWritesAComment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := restapi.New(config(), newFixture(t))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		w := serveStream(ctx, h, token)
		if got := strings.Count(w.Body.String(), ": still here\n\n"); got != 2 {
			t.Errorf("%d comments in 50 s, want 2: %q", got, w.Body.String())
		}
	})
}

// covers: T7
func TestStreamTellsOnlyOfTheKindsAskedFor(t *testing.T) {
	t.Parallel()
	s := newStreamed(t)
	cursor := s.lastChange(t)
	read := s.reader(t, "?kinds=event,agent")
	s.write(t, status("one"), event, status("two"))
	want := append([]string{": ready"}, s.written(t, cursor, store.ChangeStatus, store.ChangeEvent, store.ChangeStatus)[3:6]...)
	if diff := cmp.Diff(want, read(4)); diff != "" {
		t.Error(diff)
	}
	s.write(t, status("three"), status("four"))
	// It moves the cursor past the changes that it does not send.
	if diff := cmp.Diff([]string{fmt.Sprintf("id: %d", s.lastChange(t))}, read(1)); diff != "" {
		t.Error(diff)
	}
}

func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	jane := fleet.Member{Kind: fleet.MemberPerson, Subject: "jane@example.com", Role: fleet.RoleViewer}
	for reason, c := range map[string]struct {
		token  string
		change func(context.Context, fixture) error
	}{
		"revoked": {otherToken, func(ctx context.Context, f fixture) error {
			return f.RevokeAPIToken(ctx, admin, "default", "tok-other")
		}},
		"another role": {"kedge-session-jane", func(ctx context.Context, f fixture) error {
			return f.PutMember(ctx, admin, "default", fleet.Member{Kind: jane.Kind, Subject: jane.Subject, Role: fleet.RoleDeployer})
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			if err := f.PutMember(t.Context(), admin, "default", jane); err != nil {
				t.Fatal(err)
			}
			h := restapi.New(config(), f)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			ended := make(chan *httptest.ResponseRecorder, 1)
			go func() { ended <- serveStream(ctx, h, c.token) }()
			<-time.After(time.Minute)
			select {
			case w := <-ended:
				t.Fatalf("%s: it ended too early: %d %s", reason, w.Code, w.Body)
			default:
			}
			if err := c.change(ctx, f); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if w := <-ended; time.Since(start) > 5*time.Second || w.Code != http.StatusOK {
				t.Errorf("%s: it ended after %s: %d %s", reason, time.Since(start), w.Code, w.Body)
			}
		})
	}
}

// The database is queried once at a time for any number of streams of a caller.
func TestStreamsOfOneTokenAreCheckedTogether(t *testing.T) {
	t.Parallel()
	const streams = 20
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		f := newFixture(t)
		h := restapi.New(config(), intercept(f, "Authenticate", func(string) error {
			asked.Add(1)
			return nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var open sync.WaitGroup
		for range streams {
			open.Go(func() { serveStream(ctx, h, otherToken) })
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(time.Minute)
		if got := asked.Load() - streams; got > 32 { // in 62 s, every 2 s
			t.Errorf("asked %d times in a minute for %d streams", got, streams)
		}
		if err := f.RevokeAPIToken(ctx, admin, "default", "tok-other"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		open.Wait()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the last one ended after %s", took)
		}
		// Without open streams there are no queries.
		before := asked.Load()
		<-time.After(time.Minute)
		if got := asked.Load(); got != before {
			t.Errorf("asked %d times more", got-before)
		}
	})
}
