// Package rendertest builds in the process of a test, with the libraries of a child but without its
// confinement. It is for tests of whether something is built, not of how.
package rendertest

import (
	"context"
	"sync"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/helm"
	"github.com/kedge-dev/kedge/internal/render/kustomize"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Builder is a render.Builder that records its jobs. The zero value is ready.
type Builder struct {
	// Before, if not nil, is called for every job. Its error is the result of the job.
	Before func(ctx context.Context, job render.Job) error

	mu   sync.Mutex
	jobs []render.Job
}

var _ render.Builder = (*Builder)(nil)

// Build implements render.Builder.
func (b *Builder) Build(ctx context.Context, job render.Job) (*render.Built, error) {
	b.mu.Lock()
	b.jobs = append(b.jobs, job)
	b.mu.Unlock()
	if b.Before != nil {
		if err := b.Before(ctx, job); err != nil {
			return nil, err
		}
	}
	files := treefs.New(job.Tree, treefs.Limits{})
	if job.Kind == fleet.SourceKustomize {
		r, err := kustomize.Build(ctx, files, kustomize.Request{Path: job.Path})
		if err != nil {
			return nil, render.Fail(err, files.Reads())
		}
		return &render.Built{Objects: r.Objects, Notes: r.Notes, Reads: files.Reads()}, nil
	}
	r, err := helm.Build(ctx, files, helm.Request{Path: job.Path, Namespace: job.Namespace, Helm: job.Helm, Capabilities: job.Capabilities})
	if err != nil {
		return nil, render.Fail(err, files.Reads())
	}
	return &render.Built{Objects: r.Objects, Notes: r.Notes, Volatile: r.Volatile, Reads: files.Reads()}, nil
}

// Jobs returns the jobs so far.
func (b *Builder) Jobs() []render.Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]render.Job(nil), b.jobs...)
}

// Count returns the number of jobs so far.
func (b *Builder) Count() int { return len(b.Jobs()) }
