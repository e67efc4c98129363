package render

import (
	"context"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Job is a render by Kustomize or Helm.
type Job struct {
	Owner        string // owner of the job: a warm process serves only one owner
	Tree         filetree.Tree
	Kind         fleet.SourceKind // SourceKustomize or SourceHelm
	Path         string           // folder in the tree
	Namespace    string           // release namespace of a chart; "" means default
	Helm         fleet.Helm       // with ReleaseName set
	Capabilities fleet.Capabilities
	Limits       Limits
}

// Built is the result of a Job.
type Built struct {
	Objects  []manifest.Object // Source is the file, if the library reports it
	Reads    []string          // the read set, for treefs.Fingerprint
	Volatile bool              // the chart uses time or randomness
	Notes    []string          // information for the user, such as omitted hooks
}

// Builder executes jobs in a process with limited memory that has no access to network or disk and can be
// killed. A mistake of a user, including exceeding a limit, is an error for which IsUserError returns true, and
// a [Failed] if anything was read.
type Builder interface {
	Build(ctx context.Context, job Job) (*Built, error)
}
