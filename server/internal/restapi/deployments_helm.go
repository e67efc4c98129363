package restapi

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func sourceJSON(s fleet.Source, detected fleet.SourceKind) apiv1.Source {
	out := apiv1.Source{
		RepoURL: s.RepoURL, Path: s.Path, Revision: s.Revision, Kind: string(s.Kind), Globs: s.Globs, Variables: s.Variables,
		Helm: helmJSON(s.Helm),
	}
	if s.Kind == fleet.SourceDetected {
		out.Detected = string(detected)
	}
	return out
}

func sourceOf(s apiv1.Source) (fleet.Source, error) {
	helm, err := helmOf(s.Helm)
	return fleet.Source{
		RepoURL: s.RepoURL, Path: s.Path, Revision: s.Revision, Kind: fleet.SourceKind(s.Kind), Globs: s.Globs, Variables: s.Variables, Helm: helm,
	}, err
}

// helmJSON returns settings as the user wrote them: values are stored as JSON, see control.
func helmJSON(h fleet.Helm) *apiv1.Helm {
	if h.IsZero() {
		return nil
	}
	out := &apiv1.Helm{ReleaseName: h.ReleaseName, ValuesFiles: slices.Clone(h.ValuesFiles), SkipCRDs: h.SkipCRDs}
	for _, set := range h.Set {
		out.Set = append(out.Set, apiv1.HelmSet{Type: string(set.Type), Expression: set.Expression})
	}
	if h.Values != "" {
		// control accepts only objects.
		_ = json.Unmarshal([]byte(h.Values), &out.Values)
	}
	return out
}

func helmOf(h *apiv1.Helm) (fleet.Helm, error) {
	if h == nil {
		return fleet.Helm{}, nil
	}
	out := fleet.Helm{ReleaseName: h.ReleaseName, ValuesFiles: h.ValuesFiles, SkipCRDs: h.SkipCRDs}
	for _, set := range h.Set {
		out.Set = append(out.Set, fleet.HelmSet{Type: cmp.Or(fleet.HelmSetType(set.Type), fleet.HelmSetValue), Expression: set.Expression})
	}
	if len(h.Values) > 0 {
		values, err := json.Marshal(h.Values)
		if err != nil {
			return fleet.Helm{}, fleet.Invalid("source.helm.values", "%v", err)
		}
		out.Values = string(values)
	}
	return out, nil
}
