package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/server"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/archive"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

var (
	pgServer testpostgres.Server
	pg       = pgtest.Template{Server: &pgServer}
)

func TestMain(m *testing.M) { os.Exit(pgServer.Main(m)) }

// noGit accepts every URL and reaches none.
type noGit struct{ control.Git }

func (noGit) CheckURL(url string) (string, error) { return url, nil }

// fill puts something into as many tables as it can.
func fill(t *testing.T, st store.Store) {
	t.Helper()
	line, err := seal.NewKey("k1")
	if err != nil {
		t.Fatal(err)
	}
	ring, err := seal.Parse([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	svc, err := control.New(control.Config{Key: make([]byte, 32), Sealer: ring}, st, noGit{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Bootstrap(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	ctx, admin := t.Context(), auth.Principal{Name: "admin", FleetAdmin: true}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err = svc.CreateTenant(ctx, admin, control.CreateTenant{Name: "guest"})
	must("tenant", err)
	must("member", svc.PutMember(ctx, admin, "guest", fleet.Member{Kind: fleet.MemberGroup, Subject: "devs", Role: fleet.RoleDeployer}))
	enrolled, err := svc.EnrollAgent(ctx, admin, "default", control.EnrollAgent{Name: "paris", Labels: map[string]string{"a": "b"}, Namespaces: []string{"shop"}})
	must("agent", err)
	must("connection", svc.AgentConnected(ctx, fleet.Connection{
		SessionID: fleet.NewSessionID(), AgentID: enrolled.Agent.ID, TenantID: enrolled.Agent.TenantID, Replica: "r-0", ConnectedAt: time.Now(), LastSeenAt: time.Now(),
	}))
	_, err = svc.CreateGrant(ctx, admin, "default", control.CreateGrant{Environment: "default", Grantee: "guest", Limits: fleet.Limits{Namespaces: []string{"shop"}, Kinds: []string{"ConfigMap"}}})
	must("grant", err)
	_, err = svc.CreateCredential(ctx, admin, "guest", control.CreateCredential{Name: "git", Kind: fleet.CredentialHTTPS, Username: "me", Secret: "hunter2"})
	must("credential", err)
	_, err = svc.CreateDeployment(ctx, admin, "guest", control.CreateDeployment{
		Name: "web", Labels: map[string]string{"team": "x"}, Environment: "default/default",
		Source: fleet.Source{RepoURL: "https://git.example.com/a.git", Path: "web", Globs: []string{"*.yaml"}, Variables: map[string]string{"v": "1"}},
	})
	must("deployment", err)
	must("rendered", st.Update(ctx, func(tx store.Tx) error {
		guest, err := tx.Tenants().ByName(ctx, "guest")
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(ctx, guest.ID, "web")
		if err != nil {
			return err
		}
		digest := "sha256:" + strings.Repeat("0", 64)
		if err := tx.Bundles().Put(ctx, fleet.Bundle{TenantID: guest.ID, Digest: digest, Content: []byte{0, 1, 2, 255}, Size: 4, Objects: 1, CreatedAt: time.Now()}); err != nil {
			return err
		}
		if _, err := tx.Revisions().Append(ctx, guest.ID, d.ID, fleet.Revision{Commit: "c0ffee", RenderedAt: time.Now(), Bundles: map[string]string{"": digest}}, 10); err != nil {
			return err
		}
		if err := tx.Deployments().SetRendered(ctx, guest.ID, d.ID, fleet.Rendered{Commit: "c0ffee", Key: "k", Digest: digest, At: time.Now()}); err != nil {
			return err
		}
		targets, err := tx.Targets().OfDeployment(ctx, guest.ID, d.ID)
		if err != nil || len(targets) != 1 {
			return fmt.Errorf("%d targets, %w", len(targets), err)
		}
		v := fleet.Version{Epoch: 1, Generation: 3}
		if err := tx.Targets().SetDesired(ctx, guest.ID, targets[0].ID, fleet.Desired{Version: v, Digest: digest, Commit: "c0ffee", Policy: fleet.Policy{Prune: true}}); err != nil {
			return err
		}
		_, err = tx.Targets().SetObserved(ctx, guest.ID, []store.AgentReport{{Agent: enrolled.Agent.ID, Report: store.Report{
			Target: targets[0].ID, Full: true, Observed: fleet.Observed{Version: v, Digest: digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: time.Now()},
			Objects: []fleet.ObjectStatus{{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"}, Sync: fleet.SyncSynced}},
		}}})
		return err
	}))
	_, err = svc.DeleteDeployment(ctx, admin, "guest", "web", control.Match{})
	must("operation", err)
}

// content reads a backup by table; it normalizes values that databases write differently, and omits what a
// restore changes.
func content(t *testing.T, backup []byte) map[string][]string {
	t.Helper()
	r, err := archive.NewReader(bytes.NewReader(backup))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := map[string][]string{}
	for {
		table, ok, err := r.NextTable()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		out[table.Name] = []string{}
		for {
			row, ok, err := r.NextRow()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			out[table.Name] = append(out[table.Name], rowText(t, table, row))
		}
		slices.Sort(out[table.Name])
	}
}

func rowText(t *testing.T, table archive.Table, row []any) string {
	t.Helper()
	values := map[string]any{}
	for i, c := range table.Columns {
		if table.Name == "settings" && c.Name == "epoch" {
			continue
		}
		values[c.Name] = archive.Convert(row[i], archive.Int)
	}
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func backup(t *testing.T, cfg server.DatabaseConfig) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := server.Backup(t.Context(), cfg, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// covers: O5
func TestBackupMovesFromOneDatabaseToTheOtherAndBack(t *testing.T) {
	t.Parallel()
	first := server.DatabaseConfig{DataDir: t.TempDir()}
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(first.DataDir, "kedge.db")})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, st)
	taken := backup(t, first) // while it is in use
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(taken, []byte("hunter2")) {
		t.Error("a secret is in the backup")
	}
	want := content(t, taken)
	for _, table := range []string{"tenants", "agents", "targets", "bundles", "credentials", "audit_events", "operations", "revisions", "grants"} {
		if len(want[table]) == 0 {
			t.Errorf("the backup has no %s: this test shows little", table)
		}
	}
	db := pg.Database(t)
	if err := server.Restore(t.Context(), server.DatabaseConfig{Database: db.Owner}, bytes.NewReader(taken)); err != nil {
		t.Fatal(err)
	}
	moved := backup(t, server.DatabaseConfig{Database: db.URL})
	if diff := cmp.Diff(want, content(t, moved)); diff != "" {
		t.Fatalf("in PostgreSQL (-want +got):\n%s", diff)
	}
	back := server.DatabaseConfig{DataDir: t.TempDir()}
	if err := server.Restore(t.Context(), back, bytes.NewReader(moved)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, content(t, backup(t, back))); diff != "" {
		t.Errorf("back in SQLite (-want +got):\n%s", diff)
	}
	for _, cfg := range []server.DatabaseConfig{{Database: db.Owner}, back} {
		if err := server.Restore(t.Context(), cfg, bytes.NewReader(taken)); !errors.Is(err, archive.ErrNotEmpty) {
			t.Errorf("into a database that is in use: %v", err)
		}
	}
	checkRestored(t, pgtest.Open(t, db))
}

// checkRestored checks that states after a restore are newer than all states before.
func checkRestored(t *testing.T, st store.Store) {
	t.Helper()
	svc, err := control.New(control.Config{Key: make([]byte, 32), Shared: true}, st, noGit{})
	if err != nil {
		t.Fatal(err)
	}
	if token, err := svc.Bootstrap(t.Context(), false); err != nil || token != "" {
		t.Fatalf("a restored database is treated as a new one: %v", err)
	}
	err = st.View(t.Context(), func(tx store.Tx) error {
		settings, err := tx.Settings().Get(t.Context())
		if err == nil && settings.Epoch < 2 {
			err = fmt.Errorf("the epoch is %d", settings.Epoch)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	admin := auth.Principal{Name: "admin", FleetAdmin: true}
	v, err := svc.Agent(t.Context(), admin, "default", "paris")
	if err != nil || v.Connected {
		t.Errorf("an agent of another time reads %+v, %v", v, err)
	}
	err = svc.Follow(t.Context(), admin, "default", 5, func([]store.Change) error { return nil })
	if !errors.Is(err, control.ErrCursorLost) {
		t.Errorf("a cursor of another time: %v", err)
	}
}

// covers: O5
func TestDamagedBackupRestoresNothing(t *testing.T) {
	t.Parallel()
	from := server.DatabaseConfig{DataDir: t.TempDir()}
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(from.DataDir, "kedge.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	fill(t, st)
	taken := backup(t, from)
	db := pg.Database(t)
	fresh := server.DatabaseConfig{DataDir: t.TempDir()}
	for _, cfg := range []server.DatabaseConfig{fresh, {Database: db.Owner}} {
		if err := server.Restore(t.Context(), cfg, bytes.NewReader(taken[:len(taken)-20])); err == nil {
			t.Fatal("an incomplete backup was restored")
		}
		// The failed attempt left nothing: the complete backup can be restored.
		if err := server.Restore(t.Context(), cfg, bytes.NewReader(taken)); err != nil {
			t.Fatal(err)
		}
	}
	pgtest.Open(t, db) // refuses a database without row-level security
}
