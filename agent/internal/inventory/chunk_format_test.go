package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// The format of a chunk does not change with the reasons of the engine: agents of another version read the same inventory.
// The first text is of a build that had one kind of hold, no keep annotations and no names of fields; the second one is
// what is written today.
func TestChunksOfEarlierBuildsAreRead(t *testing.T) {
	t.Parallel()
	kept := Entry{
		ObjectRef: fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		Hash:      "h", Live: "l", UID: "u", Wave: -1, Depth: 2, Held: HeldOverLimit,
	}
	plain := Entry{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"}}
	const earlier = `{"seq":7,"target":"t","tenant":"acme","deployment":"shop","epoch":1,"generation":3,"digest":"d","base":2,"chunks":[0],"entries":[` +
		`{"version":"v1","kind":"ConfigMap","namespace":"shop","name":"a"},` +
		`{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"web","hash":"h","live":"l","uid":"u","wave":-1,"depth":2,"held":true}]}`
	const today = `{"seq":7,"target":"t","tenant":"acme","deployment":"shop","epoch":1,"generation":3,"digest":"d","base":2,"chunks":[0],"entries":[` +
		`{"version":"v1","kind":"ConfigMap","namespace":"shop","name":"a"},` +
		`{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"web","hash":"h","live":"l","uid":"u","wave":-1,"depth":2,"held":"OverLimit"}]}`
	for name, text := range map[string]string{"earlier": earlier, "today": today} {
		p, err := decode("t", text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []Entry
		for _, line := range p.Entries {
			got = append(got, line.entry())
		}
		if diff := cmp.Diff([]Entry{plain, kept}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	record := Record{Target: "t", Tenant: "acme", Deployment: "shop", Version: fleet.Version{Epoch: 1, Generation: 3}, Digest: "d", Base: 2}
	text, err := encode(record, 7, []int{0}, map[Key]Entry{KeyOf(plain.ObjectRef): plain, KeyOf(kept.ObjectRef): kept})
	if diff := cmp.Diff(today, text); diff != "" || err != nil {
		t.Errorf("the format has changed (-want +got): %v\n%s", err, diff)
	}
}
