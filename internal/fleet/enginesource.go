package fleet

import "strings"

// EngineSource is where Argo CD finds the objects of a target, for an agent that does not apply by itself. The revision
// is always Desired.Commit.
type EngineSource struct {
	RepoURL string
	Path    string     // folder in the repository; "." is its root
	Kind    SourceKind // never SourceDetected
	Helm    Helm       // for charts
	// Unsupported names settings of the deployment that Argo CD cannot apply. An engine refuses a source that has any.
	Unsupported []string
	// Namespaces are those of the objects that the server rendered, sorted.
	Namespaces []string
	// Kept names, as ObjectRef.String does, rendered objects whose annotations keep them when they leave the source, or
	// when the deployment is deleted; sorted.
	Kept []string
	// Objects names every rendered object, sorted. An engine never prunes one of them, even if Argo CD renders the source
	// differently. An object without a namespace is listed with and without that of the deployment.
	Objects []string
	// Credential is the credential of the repository; nil if it has none, or if Withheld is set.
	Credential *GitCredential
	// Withheld says why the agent does not get the credential that the repository has.
	Withheld CredentialWithheld
	// Environment is the push environment to apply to; "" means the cluster of the agent.
	Environment EnvironmentID
}

// EngineSourceOf returns the source of a deployment for one agent. A deployment whose source has no variant for the agent
// is an InvalidError.
func EngineSourceOf(d Deployment, agent Agent) (EngineSource, error) {
	source, _, err := d.For(agent)
	if err != nil {
		return EngineSource{}, err
	}
	out := EngineSource{RepoURL: source.RepoURL, Path: source.Path, Kind: source.Kind, Helm: source.Helm}
	if out.Kind == SourceDetected {
		out.Kind = d.Detected
	}
	if out.Helm.ReleaseName == "" && out.Kind == SourceHelm {
		out.Helm.ReleaseName = d.Name
	}
	if len(source.Variables) > 0 {
		out.Unsupported = append(out.Unsupported, "source.variables")
	}
	// The globs of Argo CD match other files than those of the server.
	if len(source.Globs) > 0 && !(len(source.Globs) == 1 && source.Globs[0] == DefaultGlob) {
		out.Unsupported = append(out.Unsupported, "source.globs")
	}
	return out, nil
}

// KeepsObject reports whether annotations keep an object when it leaves the source or its deployment is deleted, as Kedge,
// Argo CD, Flux or Helm spell it.
func KeepsObject(annotations map[string]string) bool {
	if annotations["kedge.dev/prune"] == "disabled" || annotations["kustomize.toolkit.fluxcd.io/prune"] == "disabled" ||
		annotations["helm.sh/resource-policy"] == "keep" {
		return true
	}
	for option := range strings.SplitSeq(annotations["argocd.argoproj.io/sync-options"], ",") {
		switch strings.TrimSpace(option) {
		case "Prune=false", "Delete=false", "Prune=confirm", "Delete=confirm":
			return true
		}
	}
	return false
}
