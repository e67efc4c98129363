package inventory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fixture is a namespace with a store.
type fixture struct {
	maps  dynamic.ResourceInterface
	store *inventory.Store
	agent fleet.AgentID
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	c := testkit.SharedCluster(t)
	maps := c.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(c.Namespace(t))
	return fixture{maps: maps, store: inventory.NewStore(maps), agent: fleet.NewAgentID()}
}

func (s fixture) load(t *testing.T) []*inventory.Inventory {
	t.Helper()
	books, err := s.store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return books
}

func (s fixture) chunks(t *testing.T) int {
	t.Helper()
	list, err := s.maps.List(t.Context(), metav1.ListOptions{LabelSelector: inventory.LabelInventory})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func record(n int) inventory.Record {
	rec := inventory.Record{
		Tenant: "default", Deployment: "app", Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: "sha256:x",
		Entries: map[inventory.Key]inventory.Entry{},
	}
	for i := range n {
		r := fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "ns", Name: fmt.Sprintf("object-%06d", i)}
		rec.Entries[inventory.KeyOf(r)] = inventory.Entry{
			ObjectRef: r, Hash: strings.Repeat("h", 64), Live: strings.Repeat("l", 32), Fields: strings.Repeat("f", 16), UID: strings.Repeat("u", 36),
		}
	}
	return rec
}

func TestBookKeepsWhatWasSaved(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	book := s.store.New(s.agent, fleet.NewTargetID())
	for i, n := range []int{0, 1, 5000, 5001, 3, 0} {
		want := record(n)
		want.Generation += int64(i)
		if err := book.Save(t.Context(), want); err != nil {
			t.Fatalf("saving %d entries: %v", n, err)
		}
		want.Target = book.Record().Target
		books := s.load(t)
		if len(books) != 1 || len(books[0].Damaged()) != 0 {
			t.Fatalf("with %d entries: %d books", n, len(books))
		}
		if diff := cmp.Diff(want, books[0].Record()); diff != "" {
			t.Fatalf("with %d entries: read back (-want +got)\n%.2000s", n, diff)
		}
		if n == 5000 && s.chunks(t) < 3 {
			t.Errorf("%d entries are in %d chunks, want several", n, s.chunks(t))
		}
	}
	if got := s.chunks(t); got != 1 {
		t.Errorf("%d chunks are left for nothing", got)
	}
	if err := book.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.chunks(t); got != 0 {
		t.Errorf("%d chunks are left after Delete", got)
	}
}

func TestSaveWritesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	book := s.store.New(s.agent, fleet.NewTargetID())
	rec := record(5000)
	if err := book.Save(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	before := s.versions(t)
	if err := book.Save(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, s.versions(t)); diff != "" {
		t.Errorf("saving the same wrote\n%s", diff)
	}
	for key, e := range rec.Entries {
		e.Hash = "changed"
		rec.Entries[key] = e
		break
	}
	rec.Digest = "sha256:y"
	if err := book.Save(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for name, version := range s.versions(t) {
		if before[name] != version {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("a change of one entry and the digest wrote %d chunks, want 1", changed)
	}
	if got := s.load(t)[0].Record(); got.Digest != "sha256:y" {
		t.Errorf("the digest is %q: an old header won over the new one", got.Digest)
	}
}

func (s fixture) versions(t *testing.T) map[string]string {
	t.Helper()
	list, err := s.maps.List(t.Context(), metav1.ListOptions{LabelSelector: inventory.LabelInventory})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, item := range list.Items {
		out[item.GetName()] = item.GetResourceVersion()
	}
	return out
}

func TestTwoWritersNeverLoseEntries(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	target := fleet.NewTargetID()
	first := s.store.New(s.agent, target)
	if err := first.Save(t.Context(), record(2)); err != nil {
		t.Fatal(err)
	}
	second := s.load(t)[0]
	if err := second.Save(t.Context(), record(3)); err != nil {
		t.Fatal(err)
	}
	if err := first.Save(t.Context(), record(1)); err == nil {
		t.Fatal("a write over what somebody else has written was accepted")
	}
	if err := first.Save(t.Context(), record(1)); err == nil || !first.Stale() {
		t.Fatal("a book that is not up to date was written before Reload")
	}
	if err := first.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(first.Record().Entries); got != 3 {
		t.Errorf("after Reload there are %d entries, want 3", got)
	}
	if err := first.Save(t.Context(), record(1)); err != nil {
		t.Error(err)
	}
}

func TestDamagedChunkIsNeitherReadNorOverwritten(t *testing.T) {
	t.Parallel()
	texts := map[string]string{
		"empty": "", "cut off": `{"seq":1,"target":"`, "of another target": `{"seq":1,"target":"tgt-other","entries":[]}`,
		"without entries": `{"seq":1,"target":"TARGET"}`, "an entry without a name": `{"seq":1,"target":"TARGET","entries":[{"kind":"x","version":"v1"}]}`,
		"followed by rubbish": `{"seq":1,"target":"TARGET","entries":[]} {`,
	}
	for reason, text := range texts {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			target := fleet.NewTargetID()
			if err := s.store.New(s.agent, target).Save(t.Context(), record(2)); err != nil {
				t.Fatal(err)
			}
			list, err := s.maps.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				item := &list.Items[i]
				if item.GetLabels()[inventory.LabelInventory] == "" {
					continue
				}
				item.Object["data"] = map[string]any{"inventory.json": strings.ReplaceAll(text, "TARGET", string(target))}
				if _, err := s.maps.Update(t.Context(), item, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			book := s.load(t)[0]
			if len(book.Damaged()) != 1 || len(book.Record().Entries) != 0 {
				t.Fatalf("damaged is %v with %d entries", book.Damaged(), len(book.Record().Entries))
			}
			before := s.versions(t)
			if err := book.Save(t.Context(), record(1)); err != nil {
				t.Fatal(err)
			}
			if err := book.Delete(t.Context()); err == nil {
				t.Error("a damaged book was deleted")
			}
			for name, version := range before {
				if after := s.versions(t)[name]; after != version {
					t.Errorf("%s was overwritten", name)
				}
			}
			again := s.load(t)[0]
			if len(again.Damaged()) != 1 || len(again.Record().Entries) != 1 {
				t.Errorf("after a restart: damaged is %v with %d entries", again.Damaged(), len(again.Record().Entries))
			}
		})
	}
}

// A chunk that was lost names objects that nobody knows of any more.
func TestMissingChunkIsDamage(t *testing.T) {
	t.Parallel()
	for lost := range 3 {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			target := fleet.NewTargetID()
			book := s.store.New(s.agent, target)
			if err := book.Save(t.Context(), record(4000)); err != nil {
				t.Fatal(err)
			}
			if got := s.load(t)[0].Damaged(); len(got) != 0 || s.chunks(t) < 3 {
				t.Fatalf("damaged is %v with %d chunks, want none of several", got, s.chunks(t))
			}
			name := fmt.Sprintf("kedge-inventory-%s-%d", target, lost)
			if err := s.maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			for range 2 { // writing the rest does not make it whole
				again := s.load(t)[0]
				if got := again.Damaged(); len(got) != 1 || !strings.Contains(got[0], name) {
					t.Fatalf("damaged is %v, want %s", got, name)
				}
				if err := again.Delete(t.Context()); err == nil {
					t.Fatal("a book with a missing chunk was deleted")
				}
				rec := record(4001)
				rec.Generation++
				if err := again.Save(t.Context(), rec); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestAnOlderVersionIsNeverWritten(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	book := s.store.New(s.agent, fleet.NewTargetID())
	newer := record(1)
	newer.Generation++
	if err := book.Save(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := book.Save(t.Context(), record(1)); !errors.Is(err, inventory.ErrSuperseded) {
		t.Errorf("got %v, want it refused", err)
	}
	ahead := s.load(t)[0]
	newer.Generation++
	if err := ahead.Save(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := book.Delete(t.Context()); err == nil || s.chunks(t) == 0 {
		t.Errorf("got %v with %d chunks, want a book that another has written left alone", err, s.chunks(t))
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	if err := s.store.New(s.agent, fleet.NewTargetID()).Save(t.Context(), record(1)); err != nil {
		t.Fatal(err)
	}
	for agent, want := range map[fleet.AgentID]bool{s.agent: true, fleet.NewAgentID(): false} {
		if got, err := s.store.Holds(t.Context(), agent); err != nil || got != want {
			t.Errorf("%s: got %t (%v), want %t", agent, got, err, want)
		}
	}
}

func TestBookOfAnEarlierAgentGoesOnUnderAnotherName(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	rec := record(3000) // several chunks
	rec.Target = fleet.NewTargetID()
	if err := s.store.New(fleet.NewAgentID(), rec.Target).Save(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	book := s.load(t)[0]
	if book.Agent() == s.agent || len(book.Record().Entries) != 3000 || s.chunks(t) < 2 {
		t.Fatalf("loaded %d entries of %s in %d chunks", len(book.Record().Entries), book.Agent(), s.chunks(t))
	}
	book.SetAgent(s.agent)
	if err := book.Save(t.Context(), book.Record()); err != nil {
		t.Fatal(err)
	}
	list, err := s.maps.List(t.Context(), metav1.ListOptions{LabelSelector: inventory.LabelAgent + "=" + string(s.agent)})
	if err != nil || len(list.Items) != s.chunks(t) {
		t.Errorf("%d of %d chunks are the new agent's, %v", len(list.Items), s.chunks(t), err)
	}
	again := s.load(t)
	if len(again) != 1 || again[0].Agent() != s.agent || len(again[0].Record().Entries) != 3000 || len(again[0].Damaged()) > 0 {
		t.Errorf("read again it has %d entries, damaged %v", len(again[0].Record().Entries), again[0].Damaged())
	}
	before := again[0].Record()
	again[0].SetAgent(s.agent)
	if err := again[0].Save(t.Context(), before); err != nil || again[0].Stale() {
		t.Errorf("saving what is there: %v", err)
	}
}
