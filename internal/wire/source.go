package wire

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Limits of a source.
const (
	maxURL      = 2 << 10
	maxPath     = 4 << 10
	maxValues   = 1 << 20
	maxSettings = 4096 // entries of lists of settings
	maxSecret   = 128 << 10
	// MaxSourceObjects bounds the objects of a source. The status of an Application lists all of them, and is one object in
	// the cluster.
	MaxSourceObjects = 5_000
)

func sourceProto(s *fleet.EngineSource) *agentv1.Source {
	if s == nil {
		return nil
	}
	out := &agentv1.Source{
		RepoUrl: s.RepoURL, Path: s.Path, Kind: string(s.Kind), Unsupported: s.Unsupported, Namespaces: s.Namespaces, Kept: s.Kept, Objects: s.Objects,
	}
	out.CredentialWithheld, out.Environment = string(s.Withheld), string(s.Environment)
	if c := s.Credential; c != nil {
		out.Credential = &agentv1.GitCredential{Kind: string(c.Kind), Username: c.Username, Secret: c.Secret.Reveal()}
	}
	if s.Helm.IsZero() {
		return out
	}
	out.Helm = &agentv1.Helm{ReleaseName: s.Helm.ReleaseName, ValuesFiles: s.Helm.ValuesFiles, Values: s.Helm.Values, SkipCrds: s.Helm.SkipCRDs}
	for _, set := range s.Helm.Set {
		out.Helm.Set = append(out.Helm.Set, &agentv1.HelmSet{Type: string(set.Type), Expression: set.Expression})
	}
	return out
}

// parseSource converts and validates a source. It refuses an unknown kind: Argo CD would choose another one.
func parseSource(m *agentv1.Source) (*fleet.EngineSource, error) {
	if m == nil {
		return nil, nil
	}
	s := &fleet.EngineSource{
		RepoURL: m.GetRepoUrl(), Path: m.GetPath(), Kind: fleet.SourceKind(m.GetKind()),
		Unsupported: m.GetUnsupported(), Namespaces: m.GetNamespaces(), Kept: m.GetKept(), Objects: m.GetObjects(),
		Helm: fleet.Helm{
			ReleaseName: m.GetHelm().GetReleaseName(), ValuesFiles: m.GetHelm().GetValuesFiles(), Values: m.GetHelm().GetValues(),
			SkipCRDs: m.GetHelm().GetSkipCrds(),
		},
	}
	s.Withheld = fleet.CredentialWithheld(cut(m.GetCredentialWithheld(), maxWord))
	if c := m.GetCredential(); c != nil {
		s.Credential = &fleet.GitCredential{Kind: fleet.CredentialKind(c.GetKind()), Username: c.GetUsername(), Secret: fleet.NewSecretText(c.GetSecret())}
	}
	if id := m.GetEnvironment(); id != "" {
		if err := checkID("environment", id); err != nil {
			return nil, err
		}
		s.Environment = fleet.EnvironmentID(id)
	}
	for _, set := range m.GetHelm().GetSet() {
		s.Helm.Set = append(s.Helm.Set, fleet.HelmSet{Type: fleet.HelmSetType(set.GetType()), Expression: set.GetExpression()})
	}
	return s, checkSource(s)
}

func checkSource(s *fleet.EngineSource) error {
	switch s.Kind {
	case fleet.SourcePlain, fleet.SourceKustomize, fleet.SourceHelm:
	default:
		return frameError("source kind %q is not one of plain, kustomize and helm", cut(string(s.Kind), maxWord))
	}
	if s.RepoURL == "" || len(s.RepoURL) > maxURL || len(s.Path) > maxPath || len(s.Helm.Values) > maxValues {
		return frameError("a source has no repository, or a setting that is too long")
	}
	if c := s.Credential; c != nil && (c.Kind != fleet.CredentialHTTPS && c.Kind != fleet.CredentialSSH || len(c.Username)+len(c.Secret.Reveal()) > maxSecret) {
		return frameError("a source has a credential of an unknown kind, or one that is too long")
	}
	for _, list := range [][]string{s.Unsupported, s.Helm.ValuesFiles} {
		if len(list) > maxSettings {
			return frameError("a source has a list of %d entries, more than %d", len(list), maxSettings)
		}
	}
	if n := max(len(s.Namespaces), len(s.Kept), len(s.Objects)); n > 2*MaxSourceObjects {
		return frameError("a source lists %d objects, more than %d", n, 2*MaxSourceObjects)
	}
	if len(s.Helm.Set) > maxSettings {
		return frameError("a source sets %d values, more than %d", len(s.Helm.Set), maxSettings)
	}
	for _, ns := range s.Namespaces {
		if err := checkID("namespace", ns); err != nil {
			return err
		}
	}
	return nil
}
