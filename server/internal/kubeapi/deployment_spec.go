package kubeapi

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// versionOf identifies what a resource declares: its spec, and its labels.
func versionOf(cr *v1alpha1.GitOpsDeployment) specVersion {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(cr.Labels)) {
		fmt.Fprintf(hash, "%q=%q\n", key, cr.Labels[key])
	}
	return specVersion{generation: cr.Generation, labels: string(hash.Sum(nil)[:8])}
}

// deploymentRequest converts a spec. Without an environment, the destination is the namespace of the resource.
func deploymentRequest(cr *v1alpha1.GitOpsDeployment) control.CreateDeployment {
	policy := policyOf(cr.Spec)
	req := control.CreateDeployment{
		Name: cr.Name, Labels: cr.Labels, Source: sourceOf(cr.Spec.Source), Environment: cr.Spec.Destination.Environment,
		Namespace: cmp.Or(cr.Spec.Destination.Namespace, "default"), Policy: &policy,
		Suspend: cr.Spec.Suspend,
	}
	if req.Environment == "" {
		req.Namespace = cr.Namespace
	}
	return req
}

func sourceOf(s v1alpha1.Source) fleet.Source {
	out := fleet.Source{
		RepoURL: s.RepoURL, Path: s.Path, Revision: s.TargetRevision, Kind: fleet.SourceKind(s.Kind), Globs: s.Globs, Variables: s.Variables,
	}
	if s.Helm == nil {
		return out
	}
	out.Helm = fleet.Helm{ReleaseName: s.Helm.ReleaseName, ValuesFiles: s.Helm.ValuesFiles, Values: s.Helm.Values, SkipCRDs: s.Helm.SkipCRDs}
	for _, set := range s.Helm.Set {
		out.Helm.Set = append(out.Helm.Set, fleet.HelmSet{Type: fleet.HelmSetType(cmp.Or(set.Type, string(fleet.HelmSetValue))), Expression: set.Expression})
	}
	return out
}

func policyOf(spec v1alpha1.GitOpsDeploymentSpec) fleet.Policy {
	p := spec.SyncPolicy
	out := fleet.Policy{
		Prune: p.Prune == nil || *p.Prune, Adopt: p.Adopt, AllowEmpty: p.AllowEmpty, Manual: spec.Type == "manual", PruneOnDetach: p.OnDetach == "prune",
		Force: p.Force, Replace: p.Replace, DryRun: p.PreviewOnly, Drift: fleet.DriftMode(p.Drift), Ignore: p.Ignore, ServiceAccount: p.ServiceAccount,
		Propagation: fleet.Propagation(p.Propagation), CreateNamespace: slices.Contains(p.SyncOptions, "CreateNamespace=true"),
	}
	if p.PruneTimeout != nil {
		out.PruneTimeout = p.PruneTimeout.Duration
	}
	if p.ReadyTimeout != nil {
		out.ReadyTimeout = p.ReadyTimeout.Duration
	}
	if p.PruneLimit != nil {
		out.PruneLimit = fleet.PruneLimit{Objects: p.PruneLimit.Objects, Percent: p.PruneLimit.Percent}
	}
	return out
}
