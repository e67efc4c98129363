package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var bundleTests = map[string]func(*testing.T, store.Store){
	"are stored once": func(t *testing.T, s store.Store) {
		w := newWorld(t, s, "a")
		before := last(t, s)
		again := w.bundle
		again.Content, again.CreatedAt = []byte("something else"), at(90)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Bundles().Put(ctx, again) })
		same(t, "bundle", getBundle(t, s, w.bundle), w.bundle)
		same(t, "changes", since(t, s, before), nil)
		missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Bundle, error) {
			return tx.Bundles().Get(ctx, w.tenant.ID, "sha256:unknown")
		})
	},
	"may be empty or large": func(t *testing.T, s store.Store) {
		w := newWorld(t, s, "a")
		for _, size := range []int{0, 5 << 20} {
			b := newBundle(w.tenant.ID, fmt.Sprint(size))
			b.Content = bytes.Repeat([]byte{1}, size)
			update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Bundles().Put(ctx, b) })
			got := getBundle(t, s, b)
			if !bytes.Equal(got.Content, b.Content) {
				t.Errorf("content of %d bytes: got %d other bytes", size, len(got.Content))
			}
			got.Content, b.Content = nil, nil // comparing megabytes one by one takes seconds
			same(t, "bundle", got, b)
		}
	},
	"are deleted when unused": bundlesLeave,
}

func getBundle(t *testing.T, s store.Store, b fleet.Bundle) fleet.Bundle {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Bundle, error) {
		return tx.Bundles().Get(ctx, b.TenantID, b.Digest)
	})
}

func bundlesLeave(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	names := []string{"rendered", "variant", "kept", "desired", "observed", "unused", "young", "theirs"}
	bundles := map[string]fleet.Bundle{}
	for _, name := range names {
		bundles[name] = newBundle(w.tenant.ID, name)
	}
	young, theirs := bundles["young"], bundles["theirs"]
	young.CreatedAt, theirs.TenantID = at(1000), other.tenant.ID
	bundles["young"], bundles["theirs"] = young, theirs
	d := newDeployment(w, "another")
	d.Rendered.Digest = bundles["rendered"].Digest
	desired, observed := w.target.Desired, w.target.Observed
	desired.Digest, observed.Digest = bundles["desired"].Digest, bundles["observed"].Digest
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		var errs []error
		for _, b := range bundles {
			errs = append(errs, tx.Bundles().Put(ctx, b))
		}
		errs = append(errs, tx.Deployments().Create(ctx, d),
			tx.Deployments().PutVariant(ctx, w.tenant.ID, d.ID, fleet.Variant{Name: "v", Rendered: fleet.Rendered{Digest: bundles["variant"].Digest}}),
			tx.Targets().SetDesired(ctx, w.tenant.ID, w.target.ID, desired))
		_, err := tx.Revisions().Append(ctx, w.tenant.ID, d.ID, fleet.Revision{Bundles: map[string]string{"": bundles["kept"].Digest}}, 1)
		errs = append(errs, err)
		_, err = observe(ctx, tx, w.tenant.ID, w.agent.ID, store.Report{Target: w.target.ID, Observed: observed})
		return errors.Join(append(errs, err)...)
	})
	collect := func(before time.Time) (n int) {
		update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
			n, err = tx.Bundles().DeleteUnused(ctx, w.tenant.ID, before)
			return err
		})
		return n
	}
	same(t, "deleted before anything is old", collect(at(0)), 0)
	same(t, "deleted", collect(at(500)), 1)
	for _, name := range names {
		b := bundles[name]
		if name == "unused" {
			missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Bundle, error) {
				return tx.Bundles().Get(ctx, b.TenantID, b.Digest)
			})
			continue
		}
		same(t, name, getBundle(t, s, b), b)
	}
}
