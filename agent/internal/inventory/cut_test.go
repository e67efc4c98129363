package inventory_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var errCut = errors.New("the agent was killed here")

// cut is a way to ConfigMaps on which an agent is killed at one write: before it is sent, or with its answer.
type cut struct {
	dynamic.ResourceInterface
	left int // writes until then
	lost bool
}

func (c *cut) write(send func() error) error {
	c.left--
	if c.left < 0 || c.left == 0 && !c.lost {
		return errCut
	}
	if err := send(); err != nil {
		return err
	}
	if c.left == 0 {
		return errCut
	}
	return nil
}

func (c *cut) Create(ctx context.Context, obj *unstructured.Unstructured, o metav1.CreateOptions, sub ...string) (out *unstructured.Unstructured, err error) {
	err = c.write(func() (err error) { out, err = c.ResourceInterface.Create(ctx, obj, o, sub...); return err })
	return out, err
}

func (c *cut) Update(ctx context.Context, obj *unstructured.Unstructured, o metav1.UpdateOptions, sub ...string) (out *unstructured.Unstructured, err error) {
	err = c.write(func() (err error) { out, err = c.ResourceInterface.Update(ctx, obj, o, sub...); return err })
	return out, err
}

func (c *cut) Delete(ctx context.Context, name string, o metav1.DeleteOptions, sub ...string) error {
	return c.write(func() error { return c.ResourceInterface.Delete(ctx, name, o, sub...) })
}

// wide is a record of n entries, of which few fit into a chunk, at a generation.
func wide(n int, generation int64) inventory.Record {
	rec := record(n)
	rec.Generation = generation
	for key, e := range rec.Entries {
		e.Hash = strings.Repeat("h", 3000)
		rec.Entries[key] = e
	}
	return rec
}

// An agent that is killed while it writes an inventory of several chunks finds everything again that it may have applied.
//
// covers: A6
func TestAWriteThatIsCutShortLosesNothing(t *testing.T) {
	t.Parallel()
	const few, many = 10, 250
	for name, tt := range map[string]struct{ before, after int }{
		"the first": {0, many}, "more": {few, many}, "fewer": {many, few}, "none": {many, 0}, "its end": {many, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at, done := 1, false; !done; at++ {
				for _, lost := range []bool{false, true} {
					done = cutShort(t, tt.before, tt.after, &cut{left: at, lost: lost})
				}
				if at > 50 {
					t.Fatal("it never ends")
				}
			}
		})
	}
}

// cutShort saves a record and then another, or removes it, which is cut, and reads what is left. It reports whether there was nothing to cut any more.
func cutShort(t *testing.T, before, after int, c *cut) (done bool) {
	t.Helper()
	s := newFixture(t)
	ctx := t.Context()
	was, want := wide(before, 2), wide(max(after, 0), 3)
	if before > 0 {
		if err := s.store.New(s.agent, fleet.NewTargetID()).Save(ctx, was); err != nil {
			t.Fatal(err)
		}
	}
	c.ResourceInterface = s.maps
	store := inventory.NewStore(c)
	book := store.New(s.agent, fleet.NewTargetID())
	if before > 0 {
		books, err := store.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		book = books[0]
	}
	var err error
	if after < 0 {
		err = book.Delete(ctx)
	} else {
		err = book.Save(ctx, want)
	}
	if err != nil && !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	found := map[inventory.Key]inventory.Entry{}
	for _, left := range s.load(t) {
		maps.Copy(found, left.Record().Entries)
		if damaged := left.Damaged(); len(damaged) > 0 {
			t.Errorf("cut at a write: %v is damaged", damaged)
		}
		if v := left.Version().Generation; v != 2 && v != 3 {
			t.Errorf("the version is %d", v)
		}
	}
	for key := range was.Entries {
		if _, stays := want.Entries[key]; stays && found[key] == (inventory.Entry{}) {
			t.Fatalf("%v is not known any more", key)
		}
	}
	if err == nil && len(found) != len(want.Entries) {
		t.Errorf("%d entries are left of a write that was whole, want %d", len(found), len(want.Entries))
	}
	return err == nil
}
