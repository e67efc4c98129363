package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/helmset"
)

// setFlags are Helm's flags for single values of a chart.
type setFlags struct{ values, texts, json, files []string }

// setFlagNames are the names of setFlags.
var setFlagNames = []string{"set", "set-string", "set-json", "set-file"}

func (s *setFlags) add(f *pflag.FlagSet) {
	f.StringArrayVar(&s.values, "set", nil, "values of a chart as Helm's --set takes them, such as a.b=1,list[0].name=x; may be repeated; empty removes the values set before")
	f.StringArrayVar(&s.texts, "set-string", nil, "the same, with every value a string")
	f.StringArrayVar(&s.json, "set-json", nil, "the same, with every value as JSON")
	f.StringArrayVar(&s.files, "set-file", nil, "the same, with the content of a file on this machine as value: key=path")
}

// over returns what was set before, with what is named now after it. Flags of one command count in the order of Helm.
func (s *setFlags) over(f *pflag.FlagSet, before []apiv1.HelmSet) ([]apiv1.HelmSet, error) {
	var named []fleet.HelmSet
	for _, flag := range []struct {
		kind        fleet.HelmSetType
		expressions []string
	}{{fleet.HelmSetJSON, s.json}, {fleet.HelmSetValue, s.values}, {fleet.HelmSetString, s.texts}} {
		for _, expression := range flag.expressions {
			named = append(named, fleet.HelmSet{Type: flag.kind, Expression: expression})
		}
	}
	for _, expression := range s.files {
		sets, err := helmset.FromFiles(expression, readSetFile)
		if err != nil {
			return nil, fmt.Errorf("reading --set-file: %w", err)
		}
		named = append(named, sets...)
	}
	isEmpty := func(set fleet.HelmSet) bool { return set.Expression == "" }
	if slices.ContainsFunc(named, isEmpty) {
		before, named = nil, slices.DeleteFunc(named, isEmpty)
	}
	if err := helmset.Check(named); err != nil {
		return nil, &exitError{exitUsage, err.Error(), "write it as for helm: --set a.b=value"}
	}
	out := slices.Clone(before)
	for _, set := range named {
		out = slices.DeleteFunc(out, func(old apiv1.HelmSet) bool { return replaces(set.Expression, old) })
		out = append(out, apiv1.HelmSet{Type: string(set.Type), Expression: set.Expression})
	}
	return out, nil
}

func readSetFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the value: %w", err)
	}
	return data, nil
}

// replaces reports whether one expression makes an older one void: both say one value, of one key. Where that is not
// plain to see the older one stays, and the new one wins over it anyway.
func replaces(now string, old apiv1.HelmSet) bool {
	nowKey, _, _ := strings.Cut(now, "=")
	oldKey, value, _ := strings.Cut(old.Expression, "=")
	if nowKey != oldKey || strings.ContainsAny(oldKey, `,\[{`) {
		return false
	}
	return !strings.ContainsAny(value, `,\`) || old.Type == string(fleet.HelmSetJSON) && json.Valid([]byte(value))
}

// helmSets are the expressions of a deployment as a render takes them.
func helmSets(sets []apiv1.HelmSet) []fleet.HelmSet {
	var out []fleet.HelmSet
	for _, set := range sets {
		out = append(out, fleet.HelmSet{Type: cmp.Or(fleet.HelmSetType(set.Type), fleet.HelmSetValue), Expression: set.Expression})
	}
	return out
}
