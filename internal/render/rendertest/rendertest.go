// Package rendertest builds in the process of a test, with the libraries that a child has and none of its
// walls: for tests of what decides whether something is built, not of how.
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

// Builder is a render.Builder that remembers what it was asked for. The zero value is ready.
type Builder struct {
	// Before is called for every job; nil means nothing is. An error of it is the job's.
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

// Jobs returns what was asked for so far.
func (b *Builder) Jobs() []render.Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]render.Job(nil), b.jobs...)
}

// Count is how many builds were asked for.
func (b *Builder) Count() int { return len(b.Jobs()) }
