package fleet

import (
	"maps"
	"time"
)

// Source is the origin of the objects of a deployment.
type Source struct {
	RepoURL  string
	Path     string // folder in the repository; "." is its root
	Revision string // branch, tag, full ref or commit; "" is the default branch
	Kind     SourceKind
	Globs    []string // files below Path, for plain manifests; none means DefaultGlob
	Helm     Helm     // for charts
	// Variables replace ${name} in the objects. Without variables, ${…} stays unchanged. Path, the values here,
	// and those of Helm may use {agent.name} and {agent.labels.KEY}: then each agent gets its own variant.
	Variables map[string]string
}

// SourceKind defines how the files of a source are rendered.
type SourceKind string

// The kinds of source.
const (
	SourceDetected  SourceKind = ""          // detected from the files, see package render
	SourcePlain     SourceKind = "plain"     // YAML and JSON files by glob
	SourceKustomize SourceKind = "kustomize" // the folder contains a kustomization
	SourceHelm      SourceKind = "helm"      // the folder is a chart
)

// Helm has the settings of a chart.
type Helm struct {
	ReleaseName string   // "" means the name of the deployment
	ValuesFiles []string // relative to the path of the source, or to the root of the repository if they start with a slash; later files take precedence
	Values      string   // YAML that takes precedence over the files; its texts may use {agent.…}
	SkipCRDs    bool     // skip the folder crds of the chart
	// Set changes single values, in this order, after the files and Values; it may use {agent.…}.
	Set []HelmSet
}

// HelmSet sets one or more values, in the syntax of Helm's --set flags; see package helmset.
type HelmSet struct {
	Type       HelmSetType
	Expression string // "image.tag=1.10", "hosts[0].name=a,hosts[1].name=b"
}

// HelmSetType defines the type of the values of a HelmSet.
type HelmSetType string

// The types of a HelmSet, each named after a flag of Helm.
const (
	HelmSetValue  HelmSetType = "value"  // --set: true, false, null, and integers are not strings
	HelmSetString HelmSetType = "string" // --set-string: every value is a string
	HelmSetJSON   HelmSetType = "json"   // --set-json: values are JSON
)

// IsZero reports whether nothing is set.
func (h Helm) IsZero() bool {
	return h.ReleaseName == "" && len(h.ValuesFiles) == 0 && h.Values == "" && !h.SkipCRDs && len(h.Set) == 0
}

// DefaultGlob selects every manifest below the path of a source.
const DefaultGlob = "**/*.{yaml,yml,json}"

// Deployment is a source, an environment, and a policy. It has more than 20 fields because it is a row of the store: the
// spec in force beside what was rendered of it.
type Deployment struct {
	ID           DeploymentID
	TenantID     TenantID
	Name         string // RFC 1123 label, unique in its tenant among those not deleted
	Labels       map[string]string
	RepositoryID RepositoryID
	Source       Source
	// The environment may belong to another tenant that has granted it; Environment is then "owner/name".
	EnvironmentTenant TenantID
	EnvironmentID     EnvironmentID
	Environment       string
	Namespace         string // namespace of objects that have none
	Policy            Policy
	Suspension        Suspension
	Pin               Pin
	SpecRevision      int64 // rises with every edit
	// PendingSpec is the Spec of an edit that is not in force yet, see PendingSpec; 0 when there is none. All else
	// here is the spec in force.
	PendingSpecRevision int64
	// SourceRevision rises when a spec with another source, namespace or environment comes into force. See
	// Desired.SourceRevision.
	SourceRevision int64
	CreatedAt      time.Time
	DeletedAt      time.Time // zero unless its tombstones are not carried out yet

	Rendered Rendered
	// Detected is the kind found in the newest commit if Source.Kind is not set; SourceHelm if any variant is a
	// chart, "" before the first evaluation.
	Detected     SourceKind
	SourceReason Reason    // identifier of SourceError; "" if there is none
	SourceError  string    // why the newest revision could not be used; "" if it could
	SourceSince  time.Time // when SourceError or Rendered last changed
}

// Pin holds a deployment at a kept revision after a rollback, until it is released. The zero value means not
// pinned.
type Pin struct {
	Revision int64 // Revision.Seq; 0 when not pinned
	Commit   string
	At       time.Time
	By       string
	// SourceRevision is the one of the deployment at the time of the pin.
	SourceRevision int64
	// TerminatedRun is the SyncRun.Seq of the run that set the pin, if it was terminated before every target
	// had applied the revision; otherwise 0. Targets that had not applied it do not change until the next run.
	TerminatedRun int64
}

// Active reports whether the deployment is pinned.
func (p Pin) Active() bool { return p.Revision != 0 }

// Rendered is the newest revision of a deployment, or of one of its variants, that was rendered completely.
type Rendered struct {
	Commit string // "" before the first one
	Key    string // hash of everything that the render read: equal keys mean equal results
	Digest string // digest of the bundle; "" for a deployment with variants, which have their own digests
	At     time.Time
	// Reads is the read set of the render. It allows the computation of Key for another commit without a
	// render; see treefs. Plain manifests need none.
	Reads []string
	// Volatile means that the chart uses time or randomness. Because another render gives another result, it is
	// rendered only when its input changes.
	Volatile bool
}

// Variant is a deployment as rendered for the agents that share path, variables, and values, and for a chart
// also capabilities. A deployment that does not vary has none.
type Variant struct {
	Name     string // see Deployment.For
	Rendered Rendered
	Reason   Reason // identifier of Error; "" if there is none
	Error    string // why the newest revision could not be used for the variant; "" if it could
}

// Revision is a revision that was rendered completely and is kept, so that a rollback needs no Git.
type Revision struct {
	Seq        int64 // rises per deployment, from 1
	Commit     string
	RenderedAt time.Time
	// Author and Message are those of the commit, if the mirror of the server contains it. They are not stored.
	Author, Message string
	// Bundles maps names of variants to digests; without variants, the only name is "".
	Bundles map[string]string
}

// Bundle is a rendered, canonical, compressed set of objects, identified by its digest.
type Bundle struct {
	TenantID  TenantID
	Digest    string // "sha256:" + hex of the uncompressed canonical form
	Content   []byte // zstd
	Size      int64  // uncompressed
	Objects   int
	CreatedAt time.Time
}

// CloneLabels copies labels; nil becomes an empty, non-nil map.
func CloneLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	maps.Copy(out, labels)
	return out
}
