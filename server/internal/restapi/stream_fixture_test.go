package restapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// streamed is a server with a tenant quiet, in which nothing changes unless a test changes it.
type streamed struct {
	fixture
	url string
}

func newStreamed(t *testing.T) streamed {
	t.Helper()
	f := newFixtureOn(t, blockedGit{})
	s := streamed{fixture: f}
	s.write(t, seedQuiet)
	f.work(t)
	srv := httptest.NewServer(restapi.New(config(), f))
	t.Cleanup(srv.Close) // after the streams, which end with the test
	s.url = srv.URL + "/api/v1/tenants/quiet/stream"
	return s
}

func seedQuiet(ctx context.Context, tx store.Tx) error {
	return all(
		func() error {
			return tx.Tenants().Create(ctx, fleet.Tenant{ID: "ten-9", Name: "quiet", CreatedAt: born})
		},
		func() error {
			return tx.Agents().Create(ctx, fleet.Agent{ID: "agt-9", TenantID: "ten-9", Name: "a", Scope: fleet.ScopeCluster, SpecRevision: 1, CreatedAt: born})
		},
		func() error {
			return tx.Environments().Create(ctx, fleet.Environment{ID: "env-9", TenantID: "ten-9", Name: "e", SpecRevision: 1, CreatedAt: born})
		},
		func() error {
			return tx.Repositories().Create(ctx, fleet.Repository{ID: "rep-9", TenantID: "ten-9", URL: repoURL, SpecRevision: 1, CreatedAt: born})
		},
		func() error {
			return tx.Deployments().Create(ctx, fleet.Deployment{
				ID: "dep-9", TenantID: "ten-9", Name: "d", RepositoryID: "rep-9", Source: fleet.Source{RepoURL: repoURL, Path: "."},
				EnvironmentTenant: "ten-9", EnvironmentID: "env-9", Namespace: "d", SpecRevision: 1, SourceRevision: 1, CreatedAt: born,
			})
		},
		func() error {
			return tx.Targets().Create(ctx, fleet.Target{
				ID: "tgt-9", TenantID: "ten-9", AgentTenant: "ten-9", DeploymentID: "dep-9", AgentID: "agt-9", Desired: fleet.Desired{Version: first},
			})
		},
	)
}

// write makes changes in one transaction.
func (s streamed) write(t *testing.T, changes ...func(context.Context, store.Tx) error) {
	t.Helper()
	err := s.store.Update(t.Context(), func(tx store.Tx) error {
		for _, change := range changes {
			if err := change(t.Context(), tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// status returns a change of the kind status.
func status(message string) func(context.Context, store.Tx) error {
	return func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Targets().SetObserved(ctx, "ten-9", []store.AgentReport{{Agent: "agt-9", Report: store.Report{
			Target: "tgt-9", Observed: fleet.Observed{Version: first, Sync: fleet.SyncSyncing, Health: fleet.HealthInProgress, Message: message, AsOf: later},
		}}})
		return err
	}
}

// event is a change of the kind event.
func event(ctx context.Context, tx store.Tx) error {
	return tx.Events().Append(ctx, fleet.Event{At: later, TenantID: "ten-9", Type: fleet.EventNormal, Reason: fleet.ReasonAgentConnected, Message: "m"})
}

// written returns the changes after a position, as the stream writes them.
func (s streamed) written(t *testing.T, after int64, kinds ...store.ChangeKind) (lines []string) {
	t.Helper()
	var changes []store.Change
	s.view(t, func(tx store.Tx) (err error) {
		changes, err = tx.Changes().After(t.Context(), "ten-9", after, 100)
		return err
	})
	if len(changes) != len(kinds) {
		t.Fatalf("got %+v, want %v", changes, kinds)
	}
	for i, c := range changes {
		if c.Kind != kinds[i] || c.At.IsZero() {
			t.Fatalf("got %+v, want %v", changes, kinds)
		}
		at, err := json.Marshal(c.At.UTC())
		if err != nil {
			t.Fatal(err)
		}
		about := ""
		if c.Kind == store.ChangeStatus {
			about = `"id":"tgt-9","agentId":"agt-9","deploymentId":"dep-9",`
		}
		lines = append(lines, fmt.Sprintf("id: %d", c.Seq), "event: change", fmt.Sprintf(`data: {"seq":%d,"kind":%q,%s"at":%s}`, c.Seq, c.Kind, about, at))
	}
	return lines
}

// reader opens a stream, and returns a function that reads its next n lines with content, or fewer if they do not
// come.
func (s streamed) reader(t *testing.T, query string, header ...string) func(n int) []string {
	t.Helper()
	body := open(t, s.url+query, token, header...).Body
	timeout := time.AfterFunc(30*time.Second, func() { _ = body.Close() })
	t.Cleanup(func() { timeout.Stop() })
	scan := bufio.NewScanner(body)
	return func(n int) (lines []string) {
		for len(lines) < n && scan.Scan() {
			if scan.Text() != "" {
				lines = append(lines, scan.Text())
			}
		}
		return lines
	}
}
