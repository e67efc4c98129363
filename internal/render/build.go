package render

import (
	"context"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Job is a render by a library that is not our own: Kustomize or Helm.
type Job struct {
	Owner        string // whose it is: a process that is kept warm serves one owner
	Tree         filetree.Tree
	Kind         fleet.SourceKind // SourceKustomize or SourceHelm
	Path         string           // folder in the tree
	Namespace    string           // what a chart is told as its own; "" means default
	Helm         fleet.Helm       // with ReleaseName set
	Capabilities fleet.Capabilities
	Limits       Limits
}

// Built is the outcome of a Job.
type Built struct {
	Objects  []manifest.Object // Source names the file, as far as the library tells
	Reads    []string          // what was looked at, for treefs.Fingerprint
	Volatile bool              // the chart uses time or randomness
	Notes    []string          // what a user should know of it, such as hooks that were left out
}

// Builder carries out jobs in a process that can be killed, has little memory, and reaches neither the
// network nor the disk. A user's mistake, running out of a limit included, is an error for which
// IsUserError holds, and a [Failed] when anything was read.
type Builder interface {
	Build(ctx context.Context, job Job) (*Built, error)
}
