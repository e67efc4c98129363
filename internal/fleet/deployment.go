package fleet

import (
	"maps"
	"time"
)

// Source says where the objects of a deployment come from.
type Source struct {
	RepoURL  string
	Path     string // folder in the repository; "." is its root
	Revision string // branch, tag, full ref or commit; "" is the default branch
	Kind     SourceKind
	Globs    []string // which files below Path, for plain manifests; none means DefaultGlob
	Helm     Helm     // for charts
	// Variables replace ${name} in the objects; only when there are any is ${…} looked at. Path, the
	// values here and those of Helm may use {agent.name} and {agent.labels.KEY}: then every agent gets
	// its own variant.
	Variables map[string]string
}

// SourceKind says how the files of a source become objects.
type SourceKind string

// The kinds of source.
const (
	SourceDetected  SourceKind = ""          // by what the folder holds, see package render
	SourcePlain     SourceKind = "plain"     // YAML and JSON files by glob
	SourceKustomize SourceKind = "kustomize" // the folder is the root of a build
	SourceHelm      SourceKind = "helm"      // the folder is a chart
)

// Helm says how a chart is rendered.
type Helm struct {
	ReleaseName string   // "" means the name of the deployment
	ValuesFiles []string // relative to the path of the source, or from the root of the repository when they begin with a slash; later ones win
	Values      string   // YAML that wins over the files; may use {agent.…} in its texts
	SkipCRDs    bool     // leave out the folder crds of the chart
	// Set changes single values, in this order, over the files and Values; may use {agent.…}.
	Set []HelmSet
}

// HelmSet is one value, or several, in the syntax of Helm's --set flags, see package helmset.
type HelmSet struct {
	Type       HelmSetType
	Expression string // "image.tag=1.10", "hosts[0].name=a,hosts[1].name=b"
}

// HelmSetType says how the values of a HelmSet are typed.
type HelmSetType string

// The types of a HelmSet, each named after a flag of Helm.
const (
	HelmSetValue  HelmSetType = "value"  // --set: true, false, null and whole numbers are no strings
	HelmSetString HelmSetType = "string" // --set-string: every value is a string
	HelmSetJSON   HelmSetType = "json"   // --set-json: values are JSON
)

// IsZero reports whether nothing is set.
func (h Helm) IsZero() bool {
	return h.ReleaseName == "" && len(h.ValuesFiles) == 0 && h.Values == "" && !h.SkipCRDs && len(h.Set) == 0
}

// DefaultGlob selects every manifest below the path of a source.
const DefaultGlob = "**/*.{yaml,yml,json}"

// Deployment is a source, a destination and a policy.
type Deployment struct {
	ID           DeploymentID
	TenantID     TenantID
	Name         string // RFC 1123 label, unique in its tenant among those not deleted
	Labels       map[string]string
	RepositoryID RepositoryID
	Source       Source
	// The environment may belong to another tenant, which has granted it; Environment is then
	// "owner/name".
	EnvironmentTenant TenantID
	EnvironmentID     EnvironmentID
	Environment       string
	Namespace         string // for objects that name none
	Policy            Policy
	Suspension        Suspension
	Pin               Pin
	Spec              int64 // rises with every edit
	// PendingSpec is the Spec of an edit that is not in force yet, see PendingSpec; 0 when there is none. All else
	// here is the spec in force.
	PendingSpec int64
	// SourceRevision rises when a spec with another source, namespace or environment comes into force. See
	// Desired.SourceRevision.
	SourceRevision int64
	CreatedAt      time.Time
	DeletedAt      time.Time // zero unless its tombstones are still on their way

	Rendered Rendered
	// Detected is what the newest commit holds where Source.Kind does not say it; SourceHelm when any
	// variant is a chart, "" before the first look.
	Detected     SourceKind
	SourceReason Reason    // identifies SourceError; "" when there is none
	SourceError  string    // why the newest revision could not be used; "" when it could
	SourceAt     time.Time // when SourceError or Rendered last changed
}

// Pin holds a deployment at a kept revision, after a rollback, until it is released. The zero value
// means not pinned.
type Pin struct {
	Revision int64 // Revision.Seq; 0 when not pinned
	Commit   string
	At       time.Time
	By       string
	// SourceRevision is that of the deployment when it was pinned.
	SourceRevision int64
	// TerminatedRun is SyncRun.Seq of the run that has brought the pin and was terminated before every target had
	// applied the revision; 0 when none was. The targets that had not applied it change nothing until the next run.
	TerminatedRun int64
}

// Active reports whether it holds.
func (p Pin) Active() bool { return p.Revision != 0 }

// Rendered is the newest revision of a deployment, or of one variant of it, that was rendered whole.
type Rendered struct {
	Commit string // "" before the first one
	Key    string // hash of everything the render read: equal keys mean equal results
	Digest string // names the bundle; "" for a deployment with variants, which have their own
	At     time.Time
	// Reads names what the render looked at, so that Key can be found for another commit without
	// rendering it; see treefs. Plain manifests need none.
	Reads []string
	// Volatile says that the chart uses time or randomness: rendered again it gives something else, so it
	// is rendered only when what it reads has changed.
	Volatile bool
}

// Variant is a deployment as it is for the agents that share its path, variables and values, and for
// a chart what their clusters are capable of. A deployment that does not vary has none.
type Variant struct {
	Name     string // see Deployment.For
	Rendered Rendered
	Reason   Reason // identifies Error; "" when there is none
	Error    string // why the newest revision could not be used for it; "" when it could
}

// Revision is one that was rendered whole and is kept, so that a rollback needs no Git.
type Revision struct {
	Seq        int64 // counts up per deployment, from 1
	Commit     string
	RenderedAt time.Time
	// Author and Message are those of the commit, as far as the server has it at hand. They are not stored.
	Author, Message string
	// Bundles maps the names of variants to digests; without variants the only name is "".
	Bundles map[string]string
}

// Bundle is a rendered, canonical, compressed set of objects, named by its content.
type Bundle struct {
	TenantID  TenantID
	Digest    string // "sha256:" + hex of the uncompressed canonical form
	Content   []byte // zstd
	Size      int64  // uncompressed
	Objects   int
	CreatedAt time.Time
}

// CloneLabels copies labels; nil stays an empty, non-nil map.
func CloneLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	maps.Copy(out, labels)
	return out
}
