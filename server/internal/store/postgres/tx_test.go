package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
)

func TestTextThatPostgreSQLDoesNotTakeIsMended(t *testing.T) {
	t.Parallel()
	s := pg.Open(t)
	tenant, _ := newTenant(t, s, "a")
	e := event(tenant, "x")
	e.Message = "a\x00b\xffc"
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Events().Append(ctx, e) })
	err := s.View(t.Context(), func(tx store.Tx) error {
		got, err := tx.Events().List(t.Context(), tenant, store.EventFilter{})
		if err == nil && (len(got) != 1 || got[0].Message != "a\uFFFDb\uFFFDc") {
			t.Errorf("got %+v", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(t.Context(), func(tx store.Tx) error {
		_, err := tx.Agents().Get(t.Context(), tenant, "a\x00b")
		return err
	})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an invalid id: got error %v, want %v", err, store.ErrNotFound)
	}
}

func TestNoErrorOfTheDriverLeaves(t *testing.T) {
	t.Parallel()
	s := pg.Open(t)
	tenant, _ := newTenant(t, s, "a")
	cases := []struct {
		reason, query string
		want          error // nil: any
	}{
		{"an invalid statement", "SELEKT", nil},
		{"a value that a CHECK refuses", `UPDATE agents SET name = ''`, nil},
		{"a duplicate key", `INSERT INTO agents SELECT * FROM agents`, store.ErrExists},
		{"a parent that is missing", `INSERT INTO agent_labels VALUES (current_setting('kedge.tenant'), 'x', 'x', 'x')`, store.ErrNotFound},
	}
	for _, c := range cases {
		err := s.Within(t.Context(), true, func(r postgres.Raw) error {
			_, err := r.As(t.Context(), tenant, c.query)
			return err
		})
		var driver interface{ SQLState() string }
		if err == nil || errors.As(err, &driver) || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s: got error %v, want %v and none of the driver", c.reason, err, c.want)
		}
	}
	err := s.Within(t.Context(), false, func(r postgres.Raw) error {
		_, err := r.As(t.Context(), tenant, `UPDATE agents SET name = 'x'`)
		return err
	})
	if !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("a write in a view: got error %v, want %v", err, store.ErrReadOnly)
	}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	const list = `(ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))`
	cases := []struct{ query, want string }{
		{`x IN (SELECT value FROM json_each($2))`, `x = ANY ` + list},
		{`x NOT IN (SELECT value FROM json_each($2))`, `x <> ALL ` + list},
		{`FROM a CROSS JOIN bs b ON (b.x = a.x AND b.y = $1) WHERE c IN (d)`,
			`FROM a CROSS JOIN LATERAL (SELECT * FROM bs b WHERE b.x = a.x AND b.y = $1 OFFSET 0) b WHERE c IN (d)`},
		{`SELECT 1 /* FOR KEY SHARE */`, `SELECT 1 FOR KEY SHARE`},
		{`SELECT 1 /* for fun */`, `SELECT 1 /* for fun */`},
	}
	for _, c := range cases {
		if got := postgres.Translate(c.query); got != c.want {
			t.Errorf("%s: got %s, want %s", c.query, got, c.want)
		}
	}
}

// TestNoReportFailsABatch: a report of one agent must not lose the reports of others.
func TestNoReportFailsABatch(t *testing.T) {
	t.Parallel()
	s := pg.Open(t)
	f := newBed(t, s, 2, 1)
	object := func(name, message string) fleet.ObjectStatus {
		return fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: name}, Message: message}
	}
	odd, good := news(f.targets[0], 1), news(f.targets[1], 1)
	odd.Observed.Message, odd.Observed.Digest = "a\x00b", "\xff"
	odd.Objects = []fleet.ObjectStatus{object("x", "first"), object("x", "second"), object("a\x00", "third"), object("a\xff", "fourth")}
	odd.Gone = []fleet.ObjectRef{{Kind: "\x00"}}
	unknown := news(fleet.Target{ID: "\x00", AgentID: "\xff"}, 1)
	for _, c := range []struct {
		reason string
		want   int
	}{{"at first both are news", 2}, {"and then neither is", 0}} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			changed, err := tx.Targets().SetObserved(ctx, f.tenant, []store.AgentReport{odd, unknown, good})
			if len(changed) != c.want {
				t.Errorf("%s: got %q, want %d targets", c.reason, changed, c.want)
			}
			return err
		})
	}
	err := s.View(t.Context(), func(tx store.Tx) error {
		got, err := tx.Targets().Objects(t.Context(), f.tenant, f.targets[0].ID)
		if len(got) != 2 || got[0].Message != "fourth" || got[1].Message != "second" {
			t.Errorf("objects: got %+v, want the last of each name", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
