package sqlite

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

func TestNoErrorOfTheDriverLeaves(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	ctx := t.Context()
	cases := []struct {
		reason, query string
		args          []any
		want          error // nil: any
	}{
		{"an invalid statement", "SELEKT", nil, nil},
		{"a value that a CHECK refuses", `INSERT INTO server_replicas (id, address, version, started_at, beat_at) VALUES ('', '', '', 1, 1)`, nil, nil},
		{"a duplicate key", `INSERT INTO replies (scope, key, request, status, body, location, at) VALUES ('a', 'b', x'', 0, x'', '', 1), ('a', 'b', x'', 0, x'', '', 1)`, nil, store.ErrExists},
		{"a parent that is missing", `INSERT INTO agents (tenant_id, id, name, scope, spec, connected, created_at) VALUES ('x', 'x', 'x', 'cluster', 1, 0, 1)`,
			nil, store.ErrNotFound},
	}
	for _, c := range cases {
		err := within(ctx, s.writer, true, func(tx *tx) error {
			_, err := tx.Exec(ctx, sqlstore.Scope{}, c.query, c.args...)
			return err
		})
		var driver *sqlite.Error
		if err == nil || errors.As(err, &driver) || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s: got error %v, want %v and none of the driver", c.reason, err, c.want)
		}
	}
}

func TestReadersCannotWriteEvenPastTheContract(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	err := within(t.Context(), s.readers, false, func(tx *tx) error {
		_, err := tx.Exec(t.Context(), sqlstore.Scope{}, `UPDATE settings SET epoch = 2`)
		return err
	})
	if !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("got error %v, want %v", err, store.ErrReadOnly)
	}
}

func TestAConnectionWhoseTransactionIsGoneIsReplaced(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	ctx := t.Context()
	// SQLite rolls back by itself if, for example, the disk is full. The following rollback then finds no
	// transaction, and the state of the connection is unknown.
	err := within(ctx, s.writer, true, func(tx *tx) error {
		if _, err := tx.Exec(ctx, sqlstore.Scope{}, "ROLLBACK"); err != nil {
			return err
		}
		return errors.New("sorry")
	})
	if err == nil || err.Error() != "sorry" {
		t.Fatalf("got error %v", err)
	}
	if left := prepared(s.writer); len(left) > 0 {
		t.Errorf("the connection was kept with its statements %q", left)
	}
	err = s.Update(ctx, func(tx store.Tx) error { return tx.Settings().SetEpoch(ctx, 2) })
	if err != nil {
		t.Errorf("the next transaction: %v", err)
	}
}

// TestAFullDiskFailsTheTransactionOnly bounds the database to its size now.
func TestAFullDiskFailsTheTransactionOnly(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	ctx := t.Context()
	tenant := fleet.Tenant{ID: fleet.NewTenantID(), Name: "a", CreatedAt: time.Now()}
	pages := func(n string) error {
		return within(ctx, s.writer, true, func(tx *tx) error {
			var got int
			return tx.Get(ctx, sqlstore.Scope{}, []any{&got}, "PRAGMA max_page_count("+n+")")
		})
	}
	err := s.Update(ctx, func(tx store.Tx) error { return tx.Tenants().Create(ctx, tenant) })
	err = errors.Join(err, pages("1"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(tx store.Tx) error {
		return tx.Bundles().Put(ctx, fleet.Bundle{TenantID: tenant.ID, Digest: "d", Content: make([]byte, 1<<20), CreatedAt: time.Now()})
	}
	err = s.Update(ctx, func(tx store.Tx) error {
		_ = tx.Settings().SetEpoch(ctx, 2)
		_ = put(tx) // fails, and is overlooked
		_ = tx.Settings().SetEpoch(ctx, 3)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatalf("got error %v, want an error that the database is full", err)
	}
	err = s.View(ctx, func(tx store.Tx) error {
		kept, err := tx.Settings().Get(ctx)
		if err == nil && kept.Epoch != 1 {
			t.Error("a part of the transaction was kept")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pages("1000000"), s.Update(ctx, put)); err != nil {
		t.Errorf("after space was freed: %v", err)
	}
}
