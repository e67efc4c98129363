package archive_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/server/internal/store/archive"
)

var things = archive.Table{Name: "things", Columns: []archive.Column{
	{Name: "id", Kind: archive.Text}, {Name: "n", Kind: archive.Int}, {Name: "on", Kind: archive.Bool}, {Name: "blob", Kind: archive.Bytes},
}}

var rows = [][]any{
	{"a", int64(1), true, []byte{0, 1, 255}},
	{"b\n\"ü", int64(-1 << 62), false, []byte(strings.Repeat("x", 200_000))},
	{nil, nil, nil, nil},
}

func write(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, archive.Manifest{Schema: 7, Database: "test", Kedge: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []archive.Table{{Name: "empty", Columns: things.Columns}, things} {
		if err := w.Table(table); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range rows {
		if err := w.Row(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read restores an archive into a map.
func read(content []byte, schema int64, tables ...archive.Table) (map[string][][]any, error) {
	r, err := archive.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := map[string][][]any{}
	return out, archive.Restore(r, schema, tables, func(t archive.Table, next func() ([]any, bool, error)) error {
		out[t.Name] = [][]any{}
		for {
			row, ok, err := next()
			if err != nil || !ok {
				return err
			}
			out[t.Name] = append(out[t.Name], row)
		}
	})
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	// Another database has its columns in another order and no booleans.
	target := archive.Table{Name: "things", Columns: []archive.Column{
		{Name: "on", Kind: archive.Int}, {Name: "blob", Kind: archive.Bytes}, {Name: "n", Kind: archive.Int}, {Name: "id", Kind: archive.Text},
	}}
	got, err := read(write(t), 7, archive.Table{Name: "empty", Columns: things.Columns}, target)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][][]any{"empty": {}, "things": {
		{int64(1), rows[0][3], rows[0][1], rows[0][0]}, {int64(0), rows[1][3], rows[1][1], rows[1][0]}, {nil, nil, nil, nil},
	}}
	if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatIsNotWholeIsRefused(t *testing.T) {
	t.Parallel()
	whole := write(t)
	empty := archive.Table{Name: "empty", Columns: things.Columns}
	for i := range 50 { // cut anywhere
		n := len(whole) * i / 50
		if _, err := read(whole[:n], 7, empty, things); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted as complete", n, len(whole))
		}
	}
	for i := range 50 { // changed anywhere
		damaged := bytes.Clone(whole)
		at := len(whole) * i / 50
		damaged[at] ^= 0x10
		got, err := read(damaged, 7, empty, things)
		if want := map[string][][]any{"empty": {}, "things": rows}; err == nil && !cmp.Equal(want, got, cmp.Comparer(bytes.Equal)) {
			t.Fatalf("a change of byte %d went unnoticed", at)
		}
	}
	if _, err := read(append(bytes.Clone(whole), whole...), 7, empty, things); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("with trailing data: %v", err)
	}
}

func TestOtherSchemasAreRefused(t *testing.T) {
	t.Parallel()
	empty := archive.Table{Name: "empty", Columns: things.Columns}
	fewer, more := things, things
	fewer.Columns = things.Columns[:3]
	more.Columns = append(append([]archive.Column{}, things.Columns...), archive.Column{Name: "new", Kind: archive.Text})
	tests := []struct {
		name, says string
		schema     int64
		tables     []archive.Table
	}{
		{"version", "schema version 7", 8, []archive.Table{empty, things}},
		{"unknown table", "does not have", 7, []archive.Table{things}},
		{"missing table", "has no table other", 7, []archive.Table{empty, things, {Name: "other"}}},
		{"unknown column", "has no column things.blob", 7, []archive.Table{empty, fewer}},
		{"missing column", "no column things.new", 7, []archive.Table{empty, more}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := read(write(t), tt.schema, tt.tables...); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want an error with %q", err, tt.says)
			}
		})
	}
	if _, err := read([]byte("PK\x03\x04 a zip"), 7); err == nil || !strings.Contains(err.Error(), "not a backup") {
		t.Errorf("something else: %v", err)
	}
}

func TestParentsComeFirst(t *testing.T) {
	t.Parallel()
	got, err := archive.Order([]archive.Table{
		{Name: "a", Parents: []string{"c", "a"}}, {Name: "changes"}, {Name: "b"}, {Name: "c", Parents: []string{"b", "changes"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range got {
		names = append(names, table.Name)
	}
	if diff := cmp.Diff([]string{"b", "c", "a"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := archive.Order([]archive.Table{{Name: "a", Parents: []string{"b"}}, {Name: "b", Parents: []string{"a"}}}); err == nil {
		t.Error("a circle was put in order")
	}
}
