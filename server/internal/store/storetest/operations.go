package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: T2
var operationTests = map[string]func(*testing.T, store.Store){
	"are listed newest first, with filters":  operationListing,
	"change their state until they are done": operationStates,
	"are trimmed when they are done":         operationTrim,
}

func getOperation(t *testing.T, s store.Store, o fleet.Operation) fleet.Operation {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Operation, error) {
		return tx.Operations().Get(ctx, o.TenantID, o.ID)
	})
}

func operationListing(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	all := []fleet.Operation{w.operation}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for i := range 6 {
			o := newOperation(w)
			o.CreatedAt = at(100 + i/2) // two at once
			if i%2 == 0 {
				o.Kind, o.Name, o.ResourceID = "agent", "edge-1", "agt-1"
			}
			if i >= 4 {
				o.State = fleet.OperationInProgress
			}
			all = append(all, o)
			if err := tx.Operations().Create(ctx, o); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b fleet.Operation) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return -slices.Compare([]byte(a.ID), []byte(b.ID))
	})
	keep := func(fn func(fleet.Operation) bool) []fleet.Operation {
		return slices.DeleteFunc(slices.Clone(all), func(o fleet.Operation) bool { return !fn(o) })
	}
	cases := []struct {
		reason string
		filter store.OperationFilter
		want   []fleet.Operation
	}{
		{"everything", store.OperationFilter{}, all},
		{"the newest two", store.OperationFilter{Limit: 2}, all[:2]},
		{"older than one", store.OperationFilter{Before: all[2].ID, Limit: 2}, all[3:5]},
		{"older than the oldest", store.OperationFilter{Before: all[6].ID}, nil},
		{"of a kind", store.OperationFilter{Kind: "agent"}, keep(func(o fleet.Operation) bool { return o.Kind == "agent" })},
		{"of a name", store.OperationFilter{Name: "shop"}, keep(func(o fleet.Operation) bool { return o.Name == "shop" })},
		{"of one resource", store.OperationFilter{Kind: "agent", Name: "shop"}, nil},
		{"in a state", store.OperationFilter{State: fleet.OperationInProgress}, keep(func(o fleet.Operation) bool { return o.State == fleet.OperationInProgress })},
		{"in a state, of a kind", store.OperationFilter{State: fleet.OperationWaiting, Kind: "agent"},
			keep(func(o fleet.Operation) bool { return o.State == fleet.OperationWaiting && o.Kind == "agent" })},
	}
	for _, c := range cases {
		same(t, c.reason, read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Operation, error) {
			return tx.Operations().List(ctx, w.tenant.ID, c.filter)
		}), c.want)
	}
	same(t, "of a resource", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Operation, error) {
		return tx.Operations().OfResource(ctx, w.tenant.ID, "agt-1", 2)
	}), keep(func(o fleet.Operation) bool { return o.Kind == "agent" })[:2])
}

func operationStates(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeOperation, ID: string(w.operation.ID)}
	want := w.operation
	steps := []struct {
		reason  string
		state   fleet.OperationState
		message string
		at      int
		expect  func()
		changes []store.Change
	}{
		{"nothing new", fleet.OperationWaiting, "soon", 20, func() {}, nil},
		{"it begins", fleet.OperationInProgress, "soon", 21, func() { want.State, want.UpdatedAt = fleet.OperationInProgress, at(21) }, []store.Change{record}},
		{"another message", fleet.OperationInProgress, "1 of 2", 22, func() { want.Message, want.UpdatedAt = "1 of 2", at(22) }, []store.Change{record}},
		{"it fails", fleet.OperationFailed, "refused", 23, func() {
			want.State, want.Message, want.UpdatedAt, want.FinishedAt = fleet.OperationFailed, "refused", at(23), at(23)
		}, []store.Change{record}},
		{"a finished one does not change", fleet.OperationCompleted, "after all", 24, func() {}, nil},
	}
	for _, step := range steps {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Operations().SetState(ctx, w.tenant.ID, w.operation.ID, step.state, step.message, at(step.at))
		})
		step.expect()
		same(t, step.reason, getOperation(t, s, w.operation), want)
		same(t, step.reason+": changes", since(t, s, before), step.changes)
	}
}

// defect: B11
func operationTrim(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Operations().SetState(ctx, a.tenant.ID, a.operation.ID, fleet.OperationCompleted, "", at(30))
	})
	for _, step := range []struct{ before, want int }{{30, 0}, {31, 1}, {1000, 0}} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			n, err := tx.Operations().TrimAllTenants(ctx, at(step.before))
			same(t, "trimmed", n, step.want)
			return err
		})
	}
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Operation, error) {
		return tx.Operations().Get(ctx, a.tenant.ID, a.operation.ID)
	})
	same(t, "one that is not done", getOperation(t, s, b.operation), b.operation)
}

var replyTests = map[string]func(*testing.T, store.Store){
	"are stored by key and caller": func(t *testing.T, s store.Store) {
		claim := func(r store.Reply) (kept store.Reply, mine bool) {
			update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
				kept, mine, err = tx.Replies().Claim(ctx, r)
				return err
			})
			return kept, mine
		}
		first := store.Reply{Scope: "ada", Key: "k", Request: []byte{1, 2}, At: at(10)}
		_, mine := claim(first)
		same(t, "the first has it", mine, true)
		kept, mine := claim(store.Reply{Scope: "ada", Key: "k", Request: []byte{3}, At: at(20)})
		same(t, "the second has it", mine, false)
		same(t, "while it is running", kept, first)
		_, mine = claim(store.Reply{Scope: "bob", Key: "k", At: at(10)})
		same(t, "the key of another caller", mine, true)

		done := first
		done.Status, done.Body, done.Location = 201, []byte("made"), "/x"
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Replies().Complete(ctx, done) })
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Replies().Release(ctx, "ada", "k") })
		kept, mine = claim(first)
		same(t, "an answer is not released", mine, false)
		same(t, "the answer", kept, done)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Replies().Release(ctx, "bob", "k") })
		_, mine = claim(store.Reply{Scope: "bob", Key: "k", At: at(30)})
		same(t, "a released claim", mine, true)
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
			return tx.Replies().Complete(ctx, store.Reply{Scope: "bob", Key: "unknown", Status: 200})
		})
		for _, step := range []struct{ before, want int }{{10, 0}, {11, 1}, {31, 1}} {
			update(t, s, func(ctx context.Context, tx store.Tx) error {
				n, err := tx.Replies().Trim(ctx, at(step.before))
				same(t, "trimmed", n, step.want)
				return err
			})
		}
		same(t, "changes", last(t, s), 0)
	},
}
