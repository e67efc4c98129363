package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

var (
	pgServer testpostgres.Server
	pg       = pgtest.Template{Server: &pgServer}
	admin    = auth.Principal{Name: "admin", FleetAdmin: true}
)

// replica is a whole server without the REST API: a real store, control and gateway.
type replica struct {
	*control.Service
	store  store.Store
	server *gatewaytest.Server
}

// noGit accepts every URL and cannot fetch from any.
type noGit struct{ control.Git }

func (noGit) CheckURL(url string) (string, error) { return url, nil }

func (noGit) Fetch(context.Context, gitsource.Access, []string) (map[string]gitsource.Ref, error) {
	return nil, errors.New("no Git in this test")
}

func startReplica(t *testing.T, st store.Store, shared bool) *replica {
	t.Helper()
	svc, err := control.New(control.Config{Key: make([]byte, 32), Shared: shared, Log: slog.New(slog.DiscardHandler)}, st, noGit{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Bootstrap(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- svc.Work(ctx) }()
	server, err := gatewaytest.Serve(svc, gatewaytest.Options{Lease: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stopping the gateway: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Work: %v", err)
		}
		_ = st.Close()
	})
	return &replica{Service: svc, store: st, server: server}
}

// twoReplicas returns two servers that share a PostgreSQL database.
func twoReplicas(t *testing.T) (a, b *replica) {
	t.Helper()
	db := pg.Database(t)
	var out []*replica
	for range 2 {
		st, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, startReplica(t, st, true))
	}
	return out[0], out[1]
}

func oneReplica(t *testing.T) *replica {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "kedge.db")})
	if err != nil {
		t.Fatal(err)
	}
	return startReplica(t, st, false)
}

// onEveryStore runs a test with one replica on SQLite, and with two replicas on PostgreSQL: a change on the first
// one must be visible on the second one.
func onEveryStore(t *testing.T, test func(t *testing.T, a, b *replica)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		r := oneReplica(t)
		test(t, r, r)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		a, b := twoReplicas(t)
		test(t, a, b)
	})
}

func enroll(t *testing.T, r *replica, tenant, name string) control.Enrollment {
	t.Helper()
	e, err := r.EnrollAgent(t.Context(), admin, tenant, control.EnrollAgent{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// render gives a deployment a revision, like a worker.
func render(t *testing.T, r *replica, tenant, name, value string) {
	t.Helper()
	digest, content, size := configMap(t, value).Pack()
	err := r.store.Update(t.Context(), func(tx store.Tx) error {
		ten, err := tx.Tenants().ByName(t.Context(), tenant)
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(t.Context(), ten.ID, name)
		if err != nil {
			return err
		}
		if err := tx.Bundles().Put(t.Context(), fleet.Bundle{TenantID: ten.ID, Digest: digest, Content: content, Size: size, CreatedAt: time.Now()}); err != nil {
			return err
		}
		if err := tx.Deployments().SetRendered(t.Context(), ten.ID, d.ID, fleet.Rendered{Commit: value, Key: value, Digest: digest, At: time.Now()}); err != nil {
			return err
		}
		targets, err := tx.Targets().OfDeployment(t.Context(), ten.ID, d.ID)
		for _, target := range targets {
			v := fleet.Version{Epoch: 1, Generation: target.Desired.Generation + 1}
			if err := tx.Targets().SetDesired(t.Context(), ten.ID, target.ID, fleet.Desired{Version: v, Digest: digest, Commit: value, Namespace: d.Namespace}); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func deploy(t *testing.T, r *replica, tenant, name, environment string) {
	t.Helper()
	_, err := r.CreateDeployment(t.Context(), admin, tenant, control.CreateDeployment{
		Name: name, Environment: environment, Source: fleet.Source{RepoURL: "https://git.example.com/a.git", Path: "."},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestChangeReachesAgentsOnEveryReplica(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, a, b *replica) {
		paris, rome := enroll(t, a, "default", "paris"), enroll(t, a, "default", "rome")
		here, _ := connect(t, a.server, paris.Token, nil)
		here.snapshot()
		there, _ := connect(t, b.server, rome.Token, nil)
		there.snapshot()
		deploy(t, a, "default", "app", "")
		for i := range 3 {
			render(t, a, "default", "app", fmt.Sprint(i))
			for _, p := range []*testAgent{here, there} {
				if d := p.recv().GetDesired(); d.GetGeneration() != int64(i+1) || d.GetTenant() != "default" {
					t.Fatalf("received %v, want generation %d", d, i+1)
				}
			}
		}
	})
}

// covers: C7
func TestRevocationEndsStreamsOnEveryReplica(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, a, b *replica) {
		e := enroll(t, a, "default", "paris")
		p, _ := connect(t, b.server, e.Token, nil)
		p.snapshot()
		tokens, err := a.AgentTokens(t.Context(), admin, "default", "paris", store.Page{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := a.RevokeAgentToken(t.Context(), admin, "default", "paris", tokens[0].ID); err != nil {
			t.Fatal(err)
		}
		if err := p.ended(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the stream ended with %v, want Unauthenticated", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stream ended after %s, want at most 5 s", took)
		}
	})
}

// covers: C8
func TestDeletedAgentIsDisconnected(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, a, b *replica) {
		e := enroll(t, a, "default", "paris")
		p, _ := connect(t, b.server, e.Token, nil)
		p.snapshot()
		if err := a.DeleteAgent(t.Context(), admin, "default", "paris", control.Match{}); err != nil {
			t.Fatal(err)
		}
		if err := p.ended(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the stream ended with %v, want Unauthenticated", err)
		}
		if err := dial(t, b.server, e.Token).ended(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("reconnecting ended with %v, want Unauthenticated", err)
		}
	})
}

// covers: C7
func TestRotationIsCompletedOnTheReplicaOfTheReconnect(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, a, b *replica) {
		e := enroll(t, a, "default", "paris")
		p, _ := connect(t, b.server, e.Token, nil)
		p.snapshot()
		op, err := a.RotateAgentToken(t.Context(), admin, "default", "paris")
		if err != nil {
			t.Fatal(err)
		}
		token := p.newToken()
		p.tokenStored(token.Operation, "")
		_ = p.ended()
		back, _ := connect(t, a.server, token.Token, nil)
		back.snapshot()
		testkit.Eventually(t, 20*time.Second, func(ctx context.Context) error {
			got, err := b.Operation(ctx, admin, "default", op.ID)
			if err == nil && got.State != fleet.OperationCompleted {
				err = fmt.Errorf("the rotation is %s: %s", got.State, got.Message)
			}
			return err
		})
		if err := dial(t, b.server, e.Token).ended(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the old token is still valid: %v", err)
		}
	})
}

// A deployment of one tenant in an environment that another tenant granted. The agent receives it, and reports
// under the tenant of the deployment.
func TestGrantedDeploymentsAreServedAcrossTenants(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, a, b *replica) {
		if _, err := a.CreateTenant(t.Context(), admin, control.CreateTenant{Name: "guest"}); err != nil {
			t.Fatal(err)
		}
		e := enroll(t, a, "default", "paris")
		if _, err := a.CreateGrant(t.Context(), admin, "default", control.CreateGrant{
			Environment: "default", Grantee: "guest", Limits: fleet.Limits{Namespaces: []string{"default"}},
		}); err != nil {
			t.Fatal(err)
		}
		p, _ := connect(t, b.server, e.Token, nil)
		p.snapshot()
		deploy(t, a, "guest", "app", "default/default")
		render(t, a, "guest", "app", "1")
		d, err := wire.ParseDesired(p.recv().GetDesired())
		if err != nil || d.Tenant != "guest" || len(d.Bundle) == 0 || len(d.State.Limits.Namespaces) != 1 {
			t.Fatalf("received %+v, %v", d, err)
		}
		p.status(wire.Status{Target: d.Target, Full: true, Observed: fleet.Observed{
			Version: d.State.Version, Digest: d.State.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: time.Now(),
		}})
		testkit.Eventually(t, 20*time.Second, func(ctx context.Context) error {
			v, err := a.Deployment(ctx, admin, "guest", "app")
			if err == nil && (len(v.Targets) != 1 || v.Targets[0].View.Health != fleet.HealthCurrent) {
				err = errors.New("not reported yet")
			}
			return err
		})
	})
}

// A restart of the database closes every connection. Every status that the server confirmed is stored, and the
// others arrive too.
func TestStatusesSurviveLostDatabaseConnections(t *testing.T) {
	t.Parallel()
	db := pg.Database(t)
	st, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := startReplica(t, st, true)
	e := enroll(t, r, "default", "paris")
	deploy(t, r, "default", "app", "")
	render(t, r, "default", "app", "1")
	p, _ := connect(t, r.server, e.Token, nil)
	p.held()
	d, err := wire.ParseDesired(p.snapshot()[0])
	if err != nil {
		t.Fatal(err)
	}
	adminConn, err := pgx.Connect(t.Context(), db.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer adminConn.Close(t.Context())
	const restarts, each = 10, 20
	last := ""
	for restart := range restarts {
		for i := range each {
			last = fmt.Sprint(restart, "/", i)
			p.status(wire.Status{Target: d.Target, Full: true, Observed: fleet.Observed{
				Version: d.State.Version, Digest: d.State.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, Message: last, AsOf: time.Now(),
			}})
		}
		if _, err := adminConn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
	}
	for p.recv().GetStatusStored().GetCount() < restarts*each {
	}
	v, err := r.Deployment(t.Context(), admin, "default", "app")
	if err != nil || v.Targets[0].Observed.Message != last {
		t.Errorf("all statuses were confirmed, but the stored one is %q, want %q: %v", v.Targets[0].Observed.Message, last, err)
	}
}
