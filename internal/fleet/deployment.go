package fleet

import (
	"maps"
	"slices"
	"time"
)

// DefaultEnvironment is the name of the environment that every tenant starts with. It selects
// every agent of its tenant.
const DefaultEnvironment = "default"

// Environment is a named place to deploy to. An agent belongs to it when it is named in Agents,
// or when MatchLabels is not empty and all of it is among the agent's labels; an environment
// with neither selects every agent of its tenant.
type Environment struct {
	ID          EnvironmentID
	TenantID    TenantID
	Name        string
	Agents      []string // names, sorted
	MatchLabels map[string]string
	CreatedAt   time.Time
}

// Selects reports whether agent belongs to the environment.
func (e Environment) Selects(agent Agent) bool {
	if e.TenantID != agent.TenantID {
		return false
	}
	if len(e.Agents) == 0 && len(e.MatchLabels) == 0 {
		return true
	}
	if slices.Contains(e.Agents, agent.Name) {
		return true
	}
	if len(e.MatchLabels) == 0 {
		return false
	}
	for key, want := range e.MatchLabels {
		if got, ok := agent.Labels[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// Repository is a Git URL that a tenant deploys from.
type Repository struct {
	ID        RepositoryID
	TenantID  TenantID
	URL       string
	CreatedAt time.Time
	CheckedAt time.Time // since when Error is what it is; zero before the first look
	Error     string    // why it cannot be read; "" when it can
}

// Source says where the objects of a deployment come from.
type Source struct {
	RepoURL  string
	Path     string   // folder in the repository; "." is its root
	Revision string   // branch, tag, full ref or commit; "" is the default branch
	Globs    []string // which files below Path; none means DefaultGlob
}

// DefaultGlob selects every manifest below the path of a source.
const DefaultGlob = "**/*.{yaml,yml,json}"

// Policy says how a deployment is applied.
type Policy struct {
	// Prune deletes objects that have left the source.
	Prune bool
	// Adopt takes over existing objects that nobody owns.
	Adopt bool
	// AllowEmpty accepts a source that holds no object; otherwise that is an error.
	AllowEmpty bool
}

// Deployment is a source, a destination and a policy.
type Deployment struct {
	ID            DeploymentID
	TenantID      TenantID
	Name          string // RFC 1123 label, unique in its tenant among those not deleted
	RepositoryID  RepositoryID
	Source        Source
	EnvironmentID EnvironmentID
	Environment   string // name of EnvironmentID; filled on reads
	Namespace     string // for objects that name none
	Policy        Policy
	CreatedAt     time.Time
	DeletedAt     time.Time // zero unless its tombstones are still on their way

	Rendered    Rendered
	SourceError string    // why the newest revision could not be used; "" when it could
	SourceAt    time.Time // when SourceError or Rendered last changed
}

// Rendered is the newest revision of a deployment that was rendered whole.
type Rendered struct {
	Commit string // "" before the first one
	Key    string // hash of everything the render read: equal keys mean equal results
	Digest string // names the bundle
	At     time.Time
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
