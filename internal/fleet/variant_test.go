package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// covers: G13 (values, values files and release names may speak of agents)
func TestSourcesForAgents(t *testing.T) {
	t.Parallel()
	paris := fleet.Agent{Name: "paris", Labels: map[string]string{"region": "eu"}, Capabilities: "c1"}
	chart := fleet.Deployment{Source: fleet.Source{Kind: fleet.SourceHelm}}
	if _, name, err := chart.For(paris); name != "@c1" || err != nil {
		t.Errorf("a chart for an agent is variant %q, %v", name, err)
	}
	if _, name, _ := chart.For(fleet.Agent{Name: "new"}); name != "@default" {
		t.Errorf("a chart for an agent without capabilities is variant %q", name)
	}
	if d := (fleet.Deployment{Source: fleet.Source{Path: "x"}, Detected: fleet.SourceKustomize}); d.Varies() {
		t.Error("a source that is no chart and refers to no agent varies")
	}
	stated := fleet.Deployment{Source: fleet.Source{Kind: fleet.SourcePlain}, Detected: fleet.SourceHelm}
	if stated.Chart() || !(fleet.Deployment{Detected: fleet.SourceHelm}).Chart() {
		t.Error("the setting counts, otherwise the detected kind")
	}
	helm := fleet.Helm{ReleaseName: "web-{agent.name}", ValuesFiles: []string{"a.yaml", "{agent.labels.region}.yaml"}, Values: `{"r":"{agent.labels.region}"}`,
		Set: []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: "region={agent.labels.region}"}}}
	chart.Source.Helm = helm
	source, name, err := chart.For(paris)
	want := fleet.Helm{ReleaseName: "web-paris", ValuesFiles: []string{"a.yaml", "eu.yaml"}, Values: `{"r":"eu"}`,
		Set: []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: "region=eu"}}}
	if err != nil || !source.Helm.Equal(want) || !strings.HasSuffix(name, "@c1") || name == "@c1" {
		t.Errorf("got %+v, %q, %v", source.Helm, name, err)
	}
	if helm.ValuesFiles[1] != "{agent.labels.region}.yaml" {
		t.Error("the source itself was changed")
	}
	var invalid *fleet.InvalidError
	chart.Source.Helm = fleet.Helm{Values: `{"x":"` + strings.Repeat("y", 5000) + `{agent.labels.zone}"}`}
	if _, _, err := chart.For(paris); !errors.As(err, &invalid) || invalid.Field != "source.helm.values" || !strings.Contains(err.Error(), `"zone"`) || len(err.Error()) > 300 {
		t.Errorf("a missing label is %.400v", err)
	}
}

func TestSameButCapabilities(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"@a", "@b", true}, {"x@a", "x@b", true}, {"@a", "@a", true}, {"@default", "@b", true}, {"@a", "@default", true},
		{"x@a", "y@b", false}, {"", "@b", false}, {"x", "x", false},
	} {
		if got := fleet.SameButCapabilities(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %t", tt.a, tt.b, got)
		}
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	if (fleet.Capabilities{}).Hash() != "" {
		t.Error("empty capabilities have a hash")
	}
	a := fleet.Capabilities{KubeVersion: "v1", APIVersions: []string{"v1", "apps/v1", "v1"}}.Bounded()
	b := fleet.Capabilities{KubeVersion: "v1", APIVersions: []string{"apps/v1", "v1"}}
	if a.Hash() != b.Hash() || a.Hash() == (fleet.Capabilities{KubeVersion: "v2", APIVersions: b.APIVersions}).Hash() {
		t.Error("the hash does not follow the content")
	}
	large := fleet.Capabilities{APIVersions: []string{"apps/v1", "apps/v1/Deployment"}}
	for i := range 9000 {
		large.APIVersions = append(large.APIVersions, fmt.Sprintf("group-%04d.example.com/v1/Kind%d", i, i))
	}
	small := large.Bounded()
	if len(small.APIVersions) != 1 || small.APIVersions[0] != "apps/v1" {
		t.Errorf("%d are left: kinds must be dropped first", len(small.APIVersions))
	}
	many := fleet.Capabilities{}
	for i := range 20000 {
		many.APIVersions = append(many.APIVersions, fmt.Sprintf("group-%04d.example.com/v1", i))
	}
	size := 0
	for _, api := range many.Bounded().APIVersions {
		size += len(api) + 1
	}
	if size > fleet.MaxCapabilities || size < fleet.MaxCapabilities/2 {
		t.Errorf("%d bytes are left", size)
	}
}

// References are replaced once: a label that looks like another reference stays unchanged.
func FuzzSourceForAgent(f *testing.F) {
	f.Add("in {agent.labels.region} of {agent.name}", "{agent.name}")
	f.Add("{agent.labels.region", "x")
	f.Add("{{agent.name}}", "")
	f.Fuzz(func(t *testing.T, text, label string) {
		source := fleet.Source{Variables: map[string]string{"a": text}}
		out, _, err := source.For(fleet.Agent{Name: "paris", Labels: map[string]string{"region": label}})
		if err != nil {
			return
		}
		want := strings.NewReplacer("{agent.name}", "paris", "{agent.labels.region}", label).Replace(text)
		if got := out.Variables["a"]; got != want {
			t.Errorf("%q for the label %q is %q, want %q", text, label, got, want)
		}
	})
}
