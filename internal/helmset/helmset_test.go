package helmset_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/helmset"
)

func value(expression string) fleet.HelmSet {
	return fleet.HelmSet{Type: fleet.HelmSetValue, Expression: expression}
}

// Package corpus compares the meaning of expressions with the real helm.
func TestApplyChangesValuesInOrder(t *testing.T) {
	t.Parallel()
	values := map[string]any{"hosts": []any{map[string]any{"name": "a", "port": 1.0}}, "image": map[string]any{"tag": "old"}}
	got, err := helmset.Apply(values, []fleet.HelmSet{
		value("hosts[0].name=b"),
		value("image.tag=1.10"),
		{Type: fleet.HelmSetString, Expression: "port=012,size=3"},
		{Type: fleet.HelmSetJSON, Expression: `{"image":{"pull":["x"]}}`},
		value("size=4"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"hosts": []any{map[string]any{"name": "b", "port": 1.0}},
		"image": map[string]any{"tag": "1.10", "pull": []any{"x"}},
		"port":  "012", "size": int64(4),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestExpressionsThatCannotBeAppliedAreNamed(t *testing.T) {
	t.Parallel()
	for reason, tt := range map[string]struct {
		set  fleet.HelmSet
		want string
	}{
		"no value":                  {value("a.b"), `"a.b"`},
		"no type":                   {fleet.HelmSet{Expression: "a=1"}, "not one of value, string and json"},
		"not JSON":                  {fleet.HelmSet{Type: fleet.HelmSetJSON, Expression: "a={"}, `"a={"`},
		"not an object":             {fleet.HelmSet{Type: fleet.HelmSetJSON, Expression: "{1}"}, "not a JSON object"},
		"below a string":            {value("text.b=1"), `"text.b=1"`},
		"an item of a string":       {value("text[0]=1"), `"text[0]=1"`},
		"a negative index":          {value("l[-1]=1"), "negative"},
		"nested too deep":           {value(strings.Repeat("a.", 40) + "b=1"), "nested level"},
		"not UTF-8":                 {value("a=\xff"), "UTF-8"},
		"an index that is too high": {value("a[65537]=1"), "65537"},
	} {
		_, err := helmset.Apply(map[string]any{"text": "x"}, []fleet.HelmSet{tt.set})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q in it", reason, err, tt.want)
		}
	}
}

// Helm bounds one index, and a few bytes can have many.
func TestIndexesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		strings.Repeat("a[65536]", 1) + strings.Repeat("[65536]", 1000) + "=1",
		`a[6\5536]` + strings.Repeat(`[6\5\5\36]`, 5) + "=1",
		strings.Repeat("a[+0000000000000065536][1]=1,", 6),
		strings.Repeat("a[60000][1]=1,", 6),
	} {
		for _, kind := range []fleet.HelmSetType{fleet.HelmSetValue, fleet.HelmSetString, fleet.HelmSetJSON} {
			err := helmset.Check([]fleet.HelmSet{{Type: kind, Expression: expression}})
			if err == nil || !strings.Contains(err.Error(), "smaller indexes") {
				t.Errorf("%.40s of type %s: got %v", expression, kind, err)
			}
		}
	}
	if err := helmset.Check([]fleet.HelmSet{value("a[65536]=1"), value("b[65536]=x[65536]")}); err != nil {
		t.Errorf("an expression that Helm accepts is refused: %v", err)
	}
}

func TestFilesBecomeTheirContents(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a.txt": "one,\n\"two\"\n", "b,c.txt": "three", "bad": "\xff"}
	read := func(path string) ([]byte, error) {
		text, ok := files[path]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	}
	sets, err := helmset.FromFiles(`x.y=a.txt,l[1]=b\,c.txt,m={a.txt,b\,c.txt},k\.e=a.txt`, read)
	if err != nil {
		t.Fatal(err)
	}
	got, err := helmset.Apply(nil, sets)
	if err != nil {
		t.Fatal(err)
	}
	one := files["a.txt"]
	want := map[string]any{"x": map[string]any{"y": one}, "l": []any{nil, "three"}, "m": []any{one, "three"}, "k.e": one}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	for _, wrong := range []string{"a.txt", "=a.txt", "x={a.txt", "x=bad"} {
		if _, err := helmset.FromFiles(wrong, read); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
	if _, err := helmset.FromFiles("x=missing", read); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func FuzzApply(f *testing.F) {
	for _, seed := range []string{"a=1,b=2", "a.b[0].c={x,y}", `a\.b=c\,d`, "a=null", "l[3]=", `a={"x":[1]}`, "[0]=1", "a[0][1]=2"} {
		f.Add(seed, 0)
	}
	types := []fleet.HelmSetType{fleet.HelmSetValue, fleet.HelmSetString, fleet.HelmSetJSON}
	f.Fuzz(func(_ *testing.T, expression string, kind int) {
		_, _ = helmset.Apply(map[string]any{"a": []any{"x"}, "b": map[string]any{}}, []fleet.HelmSet{{Type: types[uint(kind)%3], Expression: expression}})
	})
}
