package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// reader follows the change feed of a tenant and records it.
type reader struct {
	*bufio.Scanner
	close func()
	last  string // id of the newest event
}

// follow opens the feed after an event; "" starts now, "0" at the start.
func (d tenantClient) follow(tb testing.TB, after string) *reader {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+"/api/v1"+d.path("stream"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.Token)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	res, err := d.HTTP.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		tb.Fatalf("the feed answers %s", res.Status)
	}
	tb.Cleanup(func() { cancel(); _ = res.Body.Close() })
	return &reader{Scanner: bufio.NewScanner(res.Body), close: cancel, last: after}
}

// until reads changes up to and with the first one that enough accepts.
func (r *reader) until(tb testing.TB, enough func(apiv1.Change) bool) []apiv1.Change {
	tb.Helper()
	var out []apiv1.Change
	for r.Scan() {
		if id, ok := strings.CutPrefix(r.Text(), "id: "); ok {
			r.last = id
		}
		text, ok := strings.CutPrefix(r.Text(), "data: ")
		if !ok {
			continue
		}
		var c apiv1.Change
		if err := json.Unmarshal([]byte(text), &c); err != nil || c.Seq == 0 {
			tb.Fatalf("the feed says %q, %v", text, err)
		}
		out = append(out, c)
		if enough(c) {
			return out
		}
	}
	tb.Fatalf("the feed has ended: %v", r.Err())
	return nil
}

// covers: T7
func TestFeedResumesWithoutLoss(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		other := s.tenantClient(t, "other")
		made := func(i int) string {
			answer := d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: fmt.Sprintf("e-%d", i), MatchLabels: map[string]string{"a": "b"}})
			other.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: fmt.Sprintf("e-%d", i), MatchLabels: map[string]string{"a": "b"}})
			return decode[apiv1.Environment](t, answer).ID
		}
		isAbout := func(id string) func(apiv1.Change) bool {
			return func(c apiv1.Change) bool { return c.ID == id }
		}
		var pieces []apiv1.Change
		cursor := "0"
		for i := range 5 {
			id := made(i)
			piece := d.follow(t, cursor)
			pieces = append(pieces, piece.until(t, isAbout(id))...)
			cursor = piece.last
			piece.close()
			if i == 2 {
				s.again(t) // in the middle, between two readers
				d.Server, other.Server = s.Server, s.Server
			}
		}
		last := made(5)
		pieces = append(pieces, d.follow(t, cursor).until(t, isAbout(last))...)
		whole := d.follow(t, "0")
		if diff := cmp.Diff(whole.until(t, isAbout(last)), pieces); diff != "" {
			t.Errorf("read in pieces the feed is another one (-whole +pieces):\n%s", diff)
		}
		for i := 1; i < len(pieces); i++ {
			if pieces[i].Seq <= pieces[i-1].Seq {
				t.Errorf("change %d follows %d", pieces[i].Seq, pieces[i-1].Seq)
			}
		}
		d.want(t, 422, "GET", "stream", nil, "Last-Event-ID", "x")
	})
}

// A cursor that is older than the kept records, or from the future of a restored database, gets a reset.
//
// covers: T7
func TestFeedSaysWhenItsCursorIsLost(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	r := s.tenantClient(t, "default").follow(t, strconv.Itoa(1<<40))
	for r.Scan() {
		if r.Text() == "event: reset" {
			return
		}
	}
	t.Errorf("the feed has ended without a reset: %v", r.Err())
}

// covers: T2
func TestOperationsAreNeitherLostNorOrphaned(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		repo, commit := pushTo(t, "one")
		a := light(t, d, "prod")
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
		d.await(t, "web", healthyAt(commit, 1))

		failed := decode[apiv1.SyncRun](t, d.want(t, 202, "POST", "deployments/web/runs", apiv1.CreateRun{Revision: "no-such-branch"}))
		op := d.awaitOperation(t, failed.Operation, "Failed")
		if !strings.Contains(op.Message, "no-such-branch") || op.Name != "web" || op.By == "" {
			t.Errorf("the operation of a sync to nowhere is %+v", op)
		}

		a.stop()
		deletion := d.want(t, 202, "DELETE", "deployments/web", nil)
		place := deletion.Header.Get("Location")
		op = get[apiv1.Operation](t, d, place)
		if op.State != "Waiting" && op.State != "InProgress" {
			t.Errorf("a deletion that waits for its agent is %+v", op)
		}
		s.again(t)
		d.Server = s.Server
		if again := get[apiv1.Operation](t, d, place); again.State != op.State {
			t.Errorf("after a crash of the server the operation is %+v", again)
		}
		// The name is free immediately.
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
		newLightFleet(t, hostPort(s.URL)).run(t, a.name, a.token)
		d.awaitOperation(t, op.ID, "Completed")
		d.await(t, "web", healthyAt(commit, 1))

		waiting := get[apiv1.List[apiv1.Operation]](t, d, "operations?state=Waiting").Items
		failures := get[apiv1.List[apiv1.Operation]](t, d, "operations?state=Failed&kind=deployment&name=web").Items
		if len(waiting) != 0 || len(failures) != 1 {
			t.Errorf("there are %d operations that wait and %d that failed", len(waiting), len(failures))
		}
		out, err := s.kedge(t, "operation", "get", "--tenant", "acme")
		if err != nil || !strings.Contains(out, "deployment.delete") || !strings.Contains(out, "Completed") {
			t.Errorf("kedge operation get: %v\n%s", err, out)
		}
	})
}

// awaitOperation waits until an operation is in a state.
func (d tenantClient) awaitOperation(tb testing.TB, id, state string) apiv1.Operation {
	tb.Helper()
	var op apiv1.Operation
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		op = apiv1.Operation{}
		err := d.Call(ctx, "GET", d.path("operations/"+id), nil, &op)
		if err == nil && op.State != state {
			err = fmt.Errorf("the operation is %+v, not %s", op, state)
		}
		return err
	})
	return op
}
