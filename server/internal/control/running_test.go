package control_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/polling"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestReplicasThatStartAtOnceMakeOneAdminToken(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		n := 1
		if db.shared {
			n = 4
		}
		var mu sync.Mutex
		var tokens []string
		var starting sync.WaitGroup
		for range n {
			st := db.open(t)
			defer st.Close()
			svc, err := control.New(control.Config{Key: make([]byte, 32), Shared: db.shared}, st, noGit{})
			if err != nil {
				t.Fatal(err)
			}
			starting.Go(func() {
				token, err := svc.Bootstrap(t.Context(), false)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if token != "" {
					tokens = append(tokens, token)
				}
			})
		}
		starting.Wait()
		if len(tokens) != 1 {
			t.Fatalf("%d tokens were made", len(tokens))
		}
		st := db.open(t)
		defer st.Close()
		svc, err := control.New(control.Config{Key: make([]byte, 32), Shared: db.shared}, st, noGit{})
		if err != nil {
			t.Fatal(err)
		}
		if token, err := svc.Bootstrap(t.Context(), false); err != nil || token != "" {
			t.Errorf("a later start makes a token: %v", err)
		}
		other, err := svc.Bootstrap(t.Context(), true)
		if err != nil || other == "" {
			t.Fatalf("another token was asked for: %v", err)
		}
		for _, token := range append(tokens, other) {
			if p, err := svc.Authenticate(t.Context(), token); err != nil || !p.FleetAdmin {
				t.Errorf("a token lets in %+v, %v", p, err)
			}
		}
	})
}

// connect records a connection of an agent to a replica.
func (r *replica) connect(t *testing.T, agent fleet.Agent, replica string) fleet.Connection {
	t.Helper()
	c := fleet.Connection{
		SessionID: fleet.NewSessionID(), AgentID: agent.ID, TenantID: agent.TenantID, Replica: replica,
		ConnectedAt: time.Now(), LastSeenAt: time.Now(),
	}
	if err := r.AgentConnected(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func connected(ctx context.Context, r *replica, name string) (control.AgentView, error) {
	return r.Agent(ctx, admin, "default", name)
}

// covers: D7
func TestAgentsOfADeadReplicaAreStaleAndItsWorkIsTakenOver(t *testing.T) {
	t.Parallel()
	replicas := newReplicas(t, newPostgres(t), 3, control.Config{BeatEvery: 150 * time.Millisecond})
	agent := replicas[0].enroll(t, "paris")
	victim := 0
	replicas[victim].connect(t, agent, "r-0")
	commit := replicas[1].push(t, map[string]string{"a/cm.yaml": configMap("a", "1"), "b/cm.yaml": configMap("b", "1")})
	for _, path := range []string{"a", "b"} {
		replicas[1].deploy(t, path, path)
		replicas[2].await(t, path, atCommit(commit))
	}
	if v, err := connected(t.Context(), replicas[1], "paris"); err != nil || !v.Connected {
		t.Fatalf("before: %+v, %v", v, err)
	}
	replicas[victim].kill()
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		v, err := connected(ctx, replicas[1], "paris")
		if err == nil && v.Connected {
			err = errors.New("still connected")
		}
		return err
	})
	d, err := replicas[1].Deployment(t.Context(), admin, "default", "a")
	if err != nil || d.Targets[0].View.Health != fleet.HealthStale || d.Targets[0].View.StaleSince.IsZero() {
		t.Errorf("got %+v, %v", d.Targets, err)
	}
	// A replica leads the repository now.
	commit = replicas[2].push(t, map[string]string{"a/cm.yaml": configMap("a", "2")})
	replicas[1].await(t, "a", atCommit(commit))
}

// A replica whose heartbeats were too slow finds its connections closed, and opens them again.
func TestReplicaThatWasTakenForDeadComesBack(t *testing.T) {
	t.Parallel()
	db := newPostgres(t)
	replicas := newReplicas(t, db, 2, control.Config{BeatEvery: 150 * time.Millisecond})
	paris, rome := replicas[0].enroll(t, "paris"), replicas[0].enroll(t, "rome")
	replicas[0].connect(t, paris, "r-0")
	old := replicas[0].connect(t, rome, "r-0")
	replicas[1].connect(t, rome, "r-0") // rome has gone over, and rooms[0] does not know yet
	var slow fleet.ServerReplica
	err := replicas[1].store.Update(t.Context(), func(tx store.Tx) error {
		rows, err := tx.Connections().OfAgentsAllTenants(t.Context(), []fleet.AgentID{paris.ID})
		if err != nil {
			return err
		}
		slow.ID = rows[0].Server
		if _, err := tx.Connections().CloseOfServerAllTenants(t.Context(), slow.ID, time.Now()); err != nil {
			return err
		}
		return tx.Replicas().Remove(t.Context(), slow.ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		v, err := connected(ctx, replicas[1], "paris")
		if err == nil && !v.Connected {
			err = errors.New("not connected")
		}
		return err
	})
	v, err := connected(t.Context(), replicas[1], "rome")
	if err != nil || len(v.Connections) != 1 || v.Connections[0].SessionID == old.SessionID {
		t.Errorf("the newer connection was replaced: %+v, %v", v.Connections, err)
	}
}

func TestRestartedServerClosesWhatTheOneBeforeLeft(t *testing.T) {
	t.Parallel()
	db := newSQLite(t)
	r := newReplicas(t, db, 1, control.Config{})[0]
	paris := r.enroll(t, "paris")
	r.connect(t, paris, "r-0")
	r.kill()
	again := newReplicas(t, db, 1, control.Config{})[0]
	v, err := connected(t.Context(), again, "paris")
	if err != nil || v.Connected || v.LastSeenAt.IsZero() {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestReportsThatSayNothingNewWriteNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		paris := r.enroll(t, "paris")
		target := r.deployed(t, paris)
		r.report(t, paris, target, fleet.SyncSynced)
		// Records about the repository in the meantime are no response to a report.
		reported := func() (n int) {
			t.Helper()
			err := r.store.View(t.Context(), func(tx store.Tx) error {
				changes, err := tx.Changes().After(t.Context(), target.TenantID, 0, 1000)
				for _, c := range changes {
					if c.Kind == store.ChangeStatus {
						n++
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := reported()
		if before == 0 {
			t.Fatal("the first report was not recorded")
		}
		for range 3 {
			r.report(t, paris, target, fleet.SyncSynced)
		}
		if after := reported(); after != before {
			t.Errorf("%d changes were recorded for nothing", after-before)
		}
		// Reports about targets of other agents are skipped.
		rome := r.enroll(t, "rome")
		r.report(t, rome, target, fleet.SyncFailed)
		if after := reported(); after != before {
			t.Errorf("a report of another agent was recorded")
		}
	})
}

// An agent that was killed during a detachment has nothing more to list: the known objects stay listed.
func TestObjectsOfALetGoTargetStayListed(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	target := r.deployed(t, paris)
	say := func(sync fleet.SyncState, objects ...fleet.ObjectStatus) {
		t.Helper()
		err := r.Report(t.Context(), []rollout.AgentReports{{Agent: paris, Reports: []store.Report{{
			Target: target.ID, Full: true, Objects: objects, Observed: fleet.Observed{Version: target.Desired.Version, Sync: sync, AsOf: time.Now()},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	say(fleet.SyncSynced, fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a"}})
	target.Desired.Detached, target.Desired.Digest = true, ""
	target.Desired.Generation++
	err := r.store.Update(t.Context(), func(tx store.Tx) error {
		return tx.Targets().SetDesired(t.Context(), target.TenantID, target.ID, target.Desired)
	})
	if err != nil {
		t.Fatal(err)
	}
	say(fleet.SyncDetached)
	v, err := r.TargetObjects(t.Context(), admin, "default", "app", "paris")
	if err != nil || len(v.Objects) != 1 || v.Observed.Sync != fleet.SyncDetached {
		t.Errorf("got %+v, %v", v, err)
	}
}

// covers: T9
func TestApplicationsAreThoseOfTheAgentAndWaitForChanges(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		paris, rome := r.enroll(t, "paris"), r.enroll(t, "rome")
		commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
		r.deploy(t, "app", "app")
		r.await(t, "app", atCommit(commit))
		mine, tag, err := r.Applications(t.Context(), paris)
		if err != nil || len(mine) != 1 || mine[0].AgentID != paris.ID || mine[0].Source.RepoURL != r.url || mine[0].Environment != "default" || mine[0].Tenant != "default" {
			t.Fatalf("got %+v, %v", mine, err)
		}
		if _, other, err := r.Applications(t.Context(), rome); err != nil || other == tag {
			t.Errorf("two agents have one tag, %v", err)
		}
		// A status causes no other read.
		r.report(t, paris, mine[0].Target, fleet.SyncSynced)
		if _, same, err := r.Applications(t.Context(), paris); err != nil || same != tag {
			t.Errorf("a report changed the tag: %v", err)
		}
		if _, _, changed, err := r.WaitApplications(t.Context(), paris, tag, 50*time.Millisecond); err != nil || changed {
			t.Errorf("nothing changed, and the answer is %v, %v", changed, err)
		}
		type answer struct {
			applications []polling.Application
			changed      bool
			err          error
		}
		answers := make(chan answer, 1)
		go func() {
			got, _, changed, err := r.WaitApplications(t.Context(), paris, tag, patience)
			answers <- answer{got, changed, err}
		}()
		r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
		got := <-answers
		if got.err != nil || !got.changed || len(got.applications) != 1 || got.applications[0].Desired.Generation <= mine[0].Desired.Generation {
			t.Errorf("got %+v", got)
		}
		// So does a target alone.
		now, tag, err := r.Applications(t.Context(), paris)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			got, _, changed, err := r.WaitApplications(t.Context(), paris, tag, patience)
			answers <- answer{got, changed, err}
		}()
		desired := now[0].Desired
		desired.Generation++
		err = r.store.Update(t.Context(), func(tx store.Tx) error {
			return tx.Targets().SetDesired(t.Context(), now[0].TenantID, now[0].ID, desired)
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if got := <-answers; got.err != nil || !got.changed {
			t.Errorf("got %+v", got)
		}
		if took := time.Since(began); took > patience/2 {
			t.Errorf("it took %s: the poll was not woken", took)
		}
	})
}

// tooManyEvents gives a tenant one event more than are kept, and returns it.
func tooManyEvents(t *testing.T, st store.Store) (tenant fleet.TenantID) {
	t.Helper()
	err := st.Update(t.Context(), func(tx store.Tx) error {
		tenants, err := tx.Tenants().List(t.Context(), store.Page{Limit: 1})
		if err != nil {
			return err
		}
		tenant = tenants[0].ID
		for i := range control.KeptEvents + 1 {
			e := fleet.Event{TenantID: tenant, At: time.Now(), Type: fleet.EventNormal, Reason: "Test", Message: fmt.Sprint(i)}
			if err := tx.Events().Append(t.Context(), e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

func countEvents(t *testing.T, st store.Store, tenant fleet.TenantID) (n int) {
	t.Helper()
	err := st.View(t.Context(), func(tx store.Tx) error {
		all, err := tx.Events().List(t.Context(), tenant, store.EventFilter{Limit: 2 * control.KeptEvents})
		n = len(all)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHouseIsKept(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		st := db.open(t)
		defer st.Close()
		c := &clock{now: time.Now()}
		svc, err := control.New(control.Config{Key: make([]byte, 32), Shared: db.shared, Now: c.Now}, st, noGit{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := svc.Bootstrap(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		audits := func() int {
			t.Helper()
			list, err := svc.Audit(t.Context(), admin, "", store.AuditFilter{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		for i := range 3 {
			if _, err := svc.CreateTenant(t.Context(), admin, control.CreateTenant{Name: fmt.Sprint("t", i)}); err != nil {
				t.Fatal(err)
			}
		}
		tenant := tooManyEvents(t, st)
		svc.Trim(t.Context())
		if n := audits(); n < 3 {
			t.Fatalf("%d entries are left of a young log", n)
		}
		if n := countEvents(t, st, tenant); n != control.KeptEvents {
			t.Errorf("%d events are left, want %d", n, control.KeptEvents)
		}
		c.pass(91 * 24 * time.Hour)
		svc.Trim(t.Context())
		if n := audits(); n != 0 {
			t.Errorf("%d entries are left after 91 days", n)
		}
	})
}
