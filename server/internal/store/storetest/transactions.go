package storetest

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var transactionTests = map[string]func(*testing.T, store.Store){
	"that fail leave nothing":               rollbackLeavesNothing,
	"that panic leave nothing and panic on": panicsRollBack,
	"continue after a name that is in use":  existsIsNotTheEnd,
	"end with their context":                contextEnds,
	"do not wait longer than their context": waitersGiveUp,
	"that failed once cannot commit":        failureIsFinal,
	"that view see one moment":              viewsAreSnapshots,
	"that view write nothing":               viewsAreReadOnly,
	"of a closed store fail":                closedStore,
	"see their own writes before others do": ownWrites,
}

func rollbackLeavesNothing(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := dump(t, s, w)
	sorry := errors.New("sorry")
	refuse(t, s, sorry, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(sorry,
			tx.Agents().Create(ctx, newAgent(w.tenant.ID, "edge-9")),
			tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID),
			tx.Deployments().MarkDeleted(ctx, w.tenant.ID, w.deployment.ID, at(99)),
			tx.Events().Append(ctx, w.event),
			tx.Audit().Append(ctx, w.audit),
			tx.Members().Put(ctx, fleet.Member{TenantID: w.tenant.ID, Kind: fleet.MemberGroup, Subject: "x", Role: fleet.RoleAdmin, CreatedAt: at(1)}),
			tx.Runs().SetTargets(ctx, w.tenant.ID, w.run.ID, nil),
			tx.Events().Trim(ctx, w.tenant.ID, 0),
		)
	})
	same(t, "the tenant", dump(t, s, w), before)
}

func panicsRollBack(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := dump(t, s, w)
	for _, run := range []func(context.Context, func(store.Tx) error) error{s.Update, s.View} {
		func() {
			defer func() { same(t, "the value of the panic", recover(), any("ouch")) }()
			_ = run(t.Context(), func(tx store.Tx) error {
				_ = tx.Events().Append(t.Context(), w.event)
				panic("ouch")
			})
			t.Error("the panic should go on")
		}()
	}
	same(t, "the tenant", dump(t, s, w), before)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Events().Append(ctx, w.event) })
}

func existsIsNotTheEnd(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	fresh := newAgent(w.tenant.ID, "edge-9")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		taken := map[string]error{
			"tenant":                     tx.Tenants().Create(ctx, fleet.Tenant{ID: fleet.NewTenantID(), Name: w.tenant.Name, CreatedAt: at(1)}),
			"agent":                      tx.Agents().Create(ctx, newAgent(w.tenant.ID, w.agent.Name)),
			"token":                      tx.Tokens().CreateAgentToken(ctx, w.token),
			"environment":                tx.Environments().Create(ctx, w.env),
			"repository":                 tx.Repositories().Create(ctx, w.repo),
			"deployment":                 tx.Deployments().Create(ctx, newDeployment(w, w.deployment.Name)),
			"target":                     tx.Targets().Create(ctx, newTarget(w, w.deployment, w.agent)),
			"API token":                  tx.Tokens().CreateAPIToken(ctx, w.apiToken),
			"grant":                      tx.Grants().Create(ctx, newGrant(w.env, w.guest.ID)),
			"credential":                 tx.Credentials().Create(ctx, w.credential),
			"operation":                  tx.Operations().Create(ctx, w.operation),
			"removal of a deployment":    tx.Deployments().Remove(ctx, w.tenant.ID, w.deployment.ID),
			"deletion of an environment": tx.Environments().Delete(ctx, w.tenant.ID, w.env.ID),
			"deletion of a repository":   tx.Repositories().Delete(ctx, w.tenant.ID, w.repo.ID),
			"deletion of a credential":   tx.Credentials().Delete(ctx, w.tenant.ID, w.credential.ID),
			"deletion of a tenant":       tx.Tenants().Delete(ctx, w.tenant.ID),
		}
		for what, err := range taken {
			if !errors.Is(err, store.ErrExists) {
				t.Errorf("%s: got error %v, want %v", what, err, store.ErrExists)
			}
		}
		return tx.Agents().Create(ctx, fresh)
	})
	same(t, "agent", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
		return tx.Agents().Get(ctx, w.tenant.ID, fresh.ID)
	}), fresh)
}

func contextEnds(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := dump(t, s, w)
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Update(ctx, func(tx store.Tx) error {
		if err := tx.Events().Append(ctx, w.event); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a commit after the end: got error %v, want %v", err, context.Canceled)
	}
	for name, run := range map[string]func(context.Context, func(store.Tx) error) error{"Update": s.Update, "View": s.View} {
		err := run(ctx, func(store.Tx) error { t.Errorf("%s ran after the end", name); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s after the end: got error %v, want %v", name, err, context.Canceled)
		}
	}
	// The context of a method counts, too.
	err = s.Update(t.Context(), func(tx store.Tx) error {
		_ = tx.Events().Append(t.Context(), w.event)
		return tx.Events().Append(ctx, w.event)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a method after the end: got error %v, want %v", err, context.Canceled)
	}
	same(t, "the tenant", dump(t, s, w), before)
}

func waitersGiveUp(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	ctx, cancel := context.WithCancel(t.Context())
	update(t, s, func(bg context.Context, tx store.Tx) error {
		if err := tx.Events().Append(bg, w.event); err != nil { // holds all locks of a writer
			return err
		}
		done := make(chan error)
		go func() {
			done <- s.Update(ctx, func(tx store.Tx) error {
				return tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID)
			})
		}()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a writer whose context ended: got error %v, want %v", err, context.Canceled)
		}
		return nil
	})
	read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
		return tx.Agents().Get(ctx, w.tenant.ID, w.agent.ID)
	})
}

// failureIsFinal checks that half of a transaction cannot be committed by ignoring an error.
func failureIsFinal(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := dump(t, s, w)
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		_ = tx.Events().Append(ctx, w.event)
		_ = tx.Targets().SetDesired(ctx, w.tenant.ID, w.target.ID, fleet.Desired{Digest: "sha256:unknown"})
		_ = tx.Events().Append(ctx, w.event)
		return nil
	})
	same(t, "the tenant", dump(t, s, w), before)
}

func viewsAreSnapshots(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	count := func(ctx context.Context, tx store.Tx) int {
		events, err := tx.Events().List(ctx, w.tenant.ID, store.EventFilter{})
		if err != nil {
			t.Errorf("listing: %v", err)
		}
		return len(events)
	}
	read(t, s, func(ctx context.Context, tx store.Tx) (any, error) {
		same(t, "events at first", count(ctx, tx), 1)
		appendEvents(t, s, w.tenant.ID, 3)
		same(t, "events after others wrote", count(ctx, tx), 1)
		return nil, nil
	})
	same(t, "events", read(t, s, func(ctx context.Context, tx store.Tx) (int, error) { return count(ctx, tx), nil }), 4)
}

func viewsAreReadOnly(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	before := dump(t, s, w)
	for _, c := range calls {
		var got error
		read(t, s, func(ctx context.Context, tx store.Tx) (any, error) {
			_, got = c.do(ctx, tx, w.tenant.ID, w)
			return nil, nil
		})
		if c.writes && !errors.Is(got, store.ErrReadOnly) {
			t.Errorf("%s: got error %v, want %v", c.name, got, store.ErrReadOnly)
		}
		if !c.writes && got != nil {
			t.Errorf("%s: got error %v, want none", c.name, got)
		}
	}
	same(t, "the tenant", dump(t, s, w), before)
}

func closedStore(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	var kept store.Tx
	update(t, s, func(_ context.Context, tx store.Tx) error { kept = tx; return nil })
	for _, c := range calls {
		if _, err := c.do(t.Context(), kept, w.tenant.ID, w); err == nil {
			t.Errorf("%s on a transaction that was kept: got no error", c.name)
		}
	}
	wake := s.Notify(t.Context())
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatalf("closing: %v", err)
		}
	}
	for name, run := range map[string]func(context.Context, func(store.Tx) error) error{"Update": s.Update, "View": s.View} {
		err := run(t.Context(), func(store.Tx) error { t.Errorf("%s ran on a closed store", name); return nil })
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s: got error %v, want %v", name, err, store.ErrClosed)
		}
	}
	select {
	case <-wake:
		t.Error("a closed store must not notify")
	case <-s.Notify(t.Context()):
		t.Error("a closed store must not notify")
	default:
	}
}

func ownWrites(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	fresh := newAgent(w.tenant.ID, "edge-9")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Agents().Create(ctx, fresh); err != nil {
			return err
		}
		got, err := tx.Agents().Get(ctx, w.tenant.ID, fresh.ID)
		same(t, "inside", got, fresh)
		missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
			return tx.Agents().Get(ctx, w.tenant.ID, fresh.ID)
		})
		return err
	})
}

// methods lists "Aggregate.Method" of everything that a transaction offers.
func methods() map[string]reflect.Type {
	out := map[string]reflect.Type{}
	tx := reflect.TypeFor[store.Tx]()
	for aggregate := range tx.Methods() {
		for method := range aggregate.Type.Out(0).Methods() {
			out[strings.Join([]string{aggregate.Name, method.Name}, ".")] = method.Type
		}
	}
	return out
}
