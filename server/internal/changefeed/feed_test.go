package changefeed

import (
	"log/slog"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// The feed below has no store: whoever is in step with it must not need one.
func TestFollowersThatAreInStepReadFromMemory(t *testing.T) {
	t.Parallel()
	f := New(nil, slog.New(slog.DiscardHandler))
	f.StartAt(10)
	f.begin()
	silent, loud, all := f.join("silent", false, 10), f.join("loud", false, 10), f.join("", true, 10)
	read := func(fol *follower) (out []store.Change) {
		t.Helper()
		for {
			batch, done, err := f.next(t.Context(), fol)
			if err != nil {
				t.Fatal(err)
			}
			if out = append(out, batch...); done {
				return out
			}
		}
	}
	for _, fol := range []*follower{silent, loud, all} {
		if got := read(fol); len(got) != 0 {
			t.Fatalf("%d records before there were any", len(got))
		}
	}
	seq := int64(10)
	publish := func(tenant string, n int) {
		batch := make([]store.Change, n)
		for i := range batch {
			seq += 2 // numbers may have gaps
			batch[i] = store.Change{Seq: seq, TenantID: "loud", Kind: store.ChangeAgent}
			if tenant == "silent" {
				batch[i].TenantID = "silent"
			}
			if i%2 == 1 {
				batch[i].Kind = store.ChangeWake
			}
		}
		f.publish(batch, 11)
	}
	for range 3 * feedRing / feedBatch { // far more than is kept
		publish("loud", feedBatch)
		if got := read(loud); len(got) != feedBatch/2 {
			t.Fatalf("%d records for the tenant, want those that are not pushes", len(got))
		}
		if got := read(all); len(got) != feedBatch {
			t.Fatalf("%d records of all tenants", len(got))
		}
	}
	if silent.behind {
		t.Fatal("a follower was woken for what is not for it")
	}
	publish("silent", 1)
	if got := read(silent); len(got) != 1 || got[0].Seq != seq {
		t.Errorf("got %v, want the one record", got)
	}
	if len(f.ring) > feedRing+2*feedBatch {
		t.Errorf("%d records are kept", len(f.ring))
	}
}
