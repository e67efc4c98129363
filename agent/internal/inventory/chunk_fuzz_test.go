package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode: whatever is in a chunk, reading it does not panic, and what was accepted is written
// back and read again as the same.
func FuzzDecode(f *testing.F) {
	f.Add(`{"seq":1,"target":"t","entries":[{"version":"v1","kind":"ConfigMap","name":"a"}]}`)
	f.Add(`{"seq":1,"target":"t","entries":[]}`)
	f.Add(`{"seq":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := decode("t", text)
		if err != nil {
			return
		}
		entries := map[Key]Entry{}
		for _, line := range p.Entries {
			e := line.entry()
			entries[KeyOf(e.ObjectRef)] = e
		}
		out, err := encode(Record{Target: "t"}, p.Seq, p.Chunks, entries)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode("t", out)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		back := map[Key]Entry{}
		for _, line := range again.Entries {
			back[KeyOf(line.entry().ObjectRef)] = line.entry()
		}
		if diff := cmp.Diff(entries, back); diff != "" {
			t.Error(diff)
		}
	})
}
