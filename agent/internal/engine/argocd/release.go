package argocd

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// releaseUnused deletes AppProjects and Secrets that neither an Application nor a target uses, when that may have changed.
// They are left if the Application that needs them could not be created, and if their own deletion failed.
func (e *Engine) releaseUnused(ctx context.Context) {
	var failures wait.Backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.unused:
		}
		for ctx.Err() == nil {
			err := e.releaseOnce(ctx)
			if err == nil {
				break
			}
			e.log.Warn("an AppProject or a Secret that nothing uses stays for now", obs.Err(err))
			wait.For(ctx, failures.NextJittered(e.timing.retryFirst, e.timing.retryMax))
		}
		failures.Reset()
	}
}

func (e *Engine) releaseOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.timing.request)
	defer cancel()
	return errors.Join(e.releaseProjects(ctx), e.repositories.release(ctx), e.clusters.release(ctx))
}

// releaseSecrets deletes the Secrets that neither an Application nor a target needs any more.
func (e *Engine) releaseSecrets(ctx context.Context) {
	if errors.Join(e.repositories.release(ctx), e.clusters.release(ctx)) != nil {
		e.unused.Set()
	}
}

// releaseProjects deletes the AppProjects of this agent that no Application has and no target needs.
func (e *Engine) releaseProjects(ctx context.Context) error {
	e.writingProjects.Lock() // a target that needs one from now on creates it again
	defer e.writingProjects.Unlock()
	unused := e.cache.projectsExcept(e.neededProjects())
	if len(unused) == 0 {
		return nil
	}
	used, err := e.usedProjects(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, project := range unused {
		if !used[project.GetName()] {
			failed = append(failed, e.deleteProject(ctx, project))
		}
	}
	return errors.Join(failed...)
}

// neededProjects returns the AppProjects of the Applications and targets of this agent.
func (e *Engine) neededProjects() map[string]bool {
	out := map[string]bool{}
	for key := range e.neededRepositories() {
		out[key.project] = true
	}
	return out
}
