package output_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/cli/internal/output"
)

// covers: O4 (ages as kubectl prints them)
func TestAgesAreThoseOfKubectl(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		0: "0s", 119 * time.Second: "119s", 3 * time.Minute: "3m", 5*time.Minute + 10*time.Second: "5m10s", 3 * time.Hour: "3h",
		3*time.Hour + 5*time.Minute: "3h5m", 76 * time.Hour: "3d4h", 400 * 24 * time.Hour: "400d", -time.Minute: "0s",
	} {
		if got := output.Age(now.Add(-ago), now); got != want {
			t.Errorf("%s ago reads %q, want %q", ago, got, want)
		}
	}
	if got := output.Age(time.Time{}, now); got != output.None {
		t.Errorf("no time reads %q", got)
	}
	for at, want := range map[time.Time]string{{}: "never", now.Add(90 * 24 * time.Hour): "in 90d", now.Add(-time.Hour): "60m ago"} {
		if got := output.Until(at, now); got != want {
			t.Errorf("until %s reads %q, want %q", at, got, want)
		}
	}
}

// covers: O4 (-o jsonpath)
func TestJSONPathTemplatesAreThoseOfKubectl(t *testing.T) {
	t.Parallel()
	value := map[string]any{"items": []any{map[string]any{"name": "a", "n": 12345678}, map[string]any{"name": "b"}}}
	for template, want := range map[string]string{
		"{.items[*].name}": "a b", ".items[0].name": "a", "items[1].name": "b", "{.items[0].n}": "12345678", "{.missing}": "",
		`{range .items[*]}{.name}{"\n"}{end}`: "a\nb\n", `{.items[?(@.name=="b")].name}`: "b",
	} {
		f, err := output.ParseFormat("jsonpath="+template, output.Formats)
		if err != nil {
			t.Fatalf("%s: %v", template, err)
		}
		var out strings.Builder
		if err := f.Encode(&out, value); err != nil || out.String() != want {
			t.Errorf("%s prints %q, %v; want %q", template, out.String(), err, want)
		}
	}
	for _, wrong := range []string{"jsonpath", "jsonpath={.a", "xml", "jsonpath=[*"} {
		if _, err := output.ParseFormat(wrong, output.Formats); err == nil {
			t.Errorf("-o %s was accepted", wrong)
		}
	}
}

func TestTableShowsWideColumnsOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	table := output.Table{Header: []string{"NAME", "+LABELS", "AGE"}, Rows: [][]string{{"web", "a=b", "5m"}, {"api", "-", "3d4h"}}}
	for _, c := range []struct {
		wide, bare bool
		want       string
	}{
		{false, false, "NAME   AGE\nweb    5m\napi    3d4h\n"},
		{true, false, "NAME   LABELS   AGE\nweb    a=b      5m\napi    -        3d4h\n"},
		{false, true, "web   5m\napi   3d4h\n"},
	} {
		table.Wide, table.NoHeaders = c.wide, c.bare
		var out strings.Builder
		if err := table.Write(&out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Error(diff)
		}
	}
}
