package imageupdate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/imageset"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// SetImages is the request to change images of a deployment in its source.
type SetImages struct {
	Images  []imageset.Change
	Message string // of the commit; "" means generated
	Branch  string // a new branch for the commit; "" means the branch of the deployment
	DryRun  bool   // report what would change, and change nothing
}

// ImageUpdate is the result of SetImages.
type ImageUpdate struct {
	Places []imageset.Place
	Base   string // commit that was read
	Commit string // "" if nothing changed, or in a dry run
	Branch string // branch with the change
	// Protected is the message of the host about its protected branch, if the commit went to another branch for
	// that reason.
	Protected string
	URL       string // URL for a pull request; "" for unknown hosts

	base string // target branch of the pull request; "" for the default one
}

// Committer is a Git that can write.
type Committer interface {
	Commit(ctx context.Context, a gitsource.Access, req gitsource.CommitRequest) (gitsource.Pushed, error)
}

const (
	// imageTries limits how often a change is repeated because of concurrent pushes.
	imageTries = 5
	imagePause = 50 * time.Millisecond
)

// SetImages commits new images to the branch of a deployment. It deploys nothing: the new commit on the branch
// does, like a push of a person. A branch that the host protects does not change, and the commit goes to a new
// one. Unchanged images cause no commit.
func (s *Updater) SetImages(ctx context.Context, p auth.Principal, may Permission, name string, req SetImages) (ImageUpdate, error) {
	c, err := s.checkout(ctx, name, may)
	if err != nil {
		return ImageUpdate{}, err
	}
	if err := c.writable(req); err != nil {
		return ImageUpdate{}, err
	}
	for try := 1; ; try++ {
		update, err := s.setImagesOnce(ctx, p, c, req)
		if !errors.Is(err, gitsource.ErrMoved) {
			return update, SourceProblem(err)
		}
		if try == imageTries || !wait.For(ctx, time.Duration(try)*imagePause) {
			return ImageUpdate{}, fleet.Conflict("branch %q of %s moved %d times during the change: try again", c.branchName(), c.repo.URL, try)
		}
		if err := c.fetch(ctx); err != nil {
			return ImageUpdate{}, SourceProblem(err)
		}
	}
}

// List lists the images in the source of a deployment, and the commit that was read.
func (s *Updater) List(ctx context.Context, may Permission, name string) ([]imageset.Place, string, error) {
	c, err := s.checkout(ctx, name, may)
	if err != nil {
		return nil, "", err
	}
	// Parsing costs CPU, like rendering.
	release, err := s.renders.Acquire(ctx, string(c.tenant.ID))
	if err != nil {
		return nil, "", err
	}
	defer release()
	var out []imageset.Place
	for _, src := range c.sources {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		req, err := c.request(ctx, src)
		if err != nil {
			return nil, "", SourceProblem(err)
		}
		places, err := imageset.List(ctx, c.tree, req)
		if err != nil {
			return nil, "", SourceProblem(err)
		}
		out = append(out, places...)
	}
	return once(out), c.ref.Commit, nil
}

// once removes places that another variant has too.
func once(places []imageset.Place) []imageset.Place {
	seen := map[imageset.Place]bool{}
	return slices.DeleteFunc(places, func(p imageset.Place) bool {
		again := seen[p]
		seen[p] = true
		return again
	})
}

func (s *Updater) setImagesOnce(ctx context.Context, p auth.Principal, c *checkout, req SetImages) (ImageUpdate, error) {
	update := ImageUpdate{Base: c.ref.Commit, Branch: c.branchName(), base: c.branch()}
	edits, err := c.edits(ctx, req.Images, &update)
	if err != nil || len(edits) == 0 || req.DryRun {
		return update, err
	}
	commit := gitsource.CommitRequest{
		Branch: c.branch(), Base: c.ref.Commit, Edits: edits, Message: imageMessage(c, req, update.Places, p),
		AuthorName: p.Name, AuthorEmail: s.authorEmail(p),
	}
	if req.Branch != "" && req.Branch != c.branch() {
		commit.PushBranch = req.Branch
	}
	pushed, err := s.push(ctx, c, commit, &update)
	if errors.Is(err, gitsource.ErrNoChange) {
		return update, nil
	}
	if err != nil {
		return ImageUpdate{}, err
	}
	update.Commit, update.Branch = pushed.Commit, pushed.Branch
	if update.Protected != "" || commit.PushBranch != "" {
		update.URL = cmp.Or(pushed.Page, proposalURL(c.repo.URL, update.base, pushed.Branch))
	}
	if update.Commit == "" {
		return update, nil
	}
	// The commit is in Git even if the caller has disconnected: it must be recorded.
	return update, s.recordImages(context.WithoutCancel(ctx), p, c, update)
}

// push pushes to the branch, or to a new one if the host protects it. The name of the new one depends on the
// change, so that a repeated request does not create two.
func (s *Updater) push(ctx context.Context, c *checkout, commit gitsource.CommitRequest, update *ImageUpdate) (gitsource.Pushed, error) {
	git, ok := s.git.(Committer)
	if !ok {
		return gitsource.Pushed{}, fleet.Conflict("this server cannot write to Git")
	}
	pushed, err := git.Commit(ctx, c.access, commit)
	var protected *gitsource.ProtectedError
	if commit.PushBranch != "" || !errors.As(err, &protected) {
		return pushed, err
	}
	update.Protected, update.base = protected.Message, protected.Branch
	commit.PushBranch = fmt.Sprintf("kedge/image/%s-%s", c.deployment.Name, editsHash(commit.Edits))
	pushed, err = git.Commit(ctx, c.access, commit)
	if errors.Is(err, gitsource.ErrBranchExists) {
		return gitsource.Pushed{Branch: commit.PushBranch}, nil // the same change is already there
	}
	return pushed, err
}

// recordImages records the change and wakes the worker of the repository.
func (s *Updater) recordImages(ctx context.Context, p auth.Principal, c *checkout, update ImageUpdate) error {
	what := fmt.Sprintf("%s by commit %.12s on branch %q", imageSummary(update.Places), update.Commit, update.Branch)
	err := s.store.Update(ctx, func(tx store.Tx) error {
		if err := s.control.RecordImages(ctx, tx, p, c.deployment, what); err != nil {
			return err
		}
		return tx.Changes().WakeRepository(ctx, c.deployment.TenantID, c.repo.ID, store.Wake{Reason: store.WakePush, Ref: "refs/heads/" + update.Branch})
	})
	if err != nil {
		return fmt.Errorf("recording commit %s, which was pushed to %s: %w", update.Commit, c.repo.URL, err)
	}
	return nil
}

// edits returns the edits for all variants of the deployment.
func (c *checkout) edits(ctx context.Context, changes []imageset.Change, update *ImageUpdate) (map[string][]byte, error) {
	release, err := c.svc.renders.Acquire(ctx, string(c.tenant.ID))
	if err != nil {
		return nil, err
	}
	defer release()
	edits := map[string][]byte{}
	var missed error
	for _, src := range c.sources {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		req, err := c.request(ctx, src)
		if err != nil {
			return nil, err
		}
		req.Changes = changes
		result, err := imageset.Set(ctx, c.tree, req)
		var mistake *imageset.Error
		if errors.As(err, &mistake) && len(c.sources) > 1 {
			missed = err // another variant may have it
			continue
		}
		if err != nil {
			return nil, err
		}
		for name, content := range result.Edits {
			if other, ok := edits[name]; ok && !bytes.Equal(other, content) {
				return nil, &imageset.Error{File: name, Problem: "variants of the deployment need different changes: change it yourself"}
			}
		}
		maps.Copy(edits, result.Edits)
		update.Places = append(update.Places, result.Places...)
	}
	update.Places = once(update.Places)
	if len(update.Places) == 0 {
		return nil, missed
	}
	return edits, nil
}

// request returns the search request for the images of one variant.
func (c *checkout) request(ctx context.Context, src fleet.Source) (imageset.Request, error) {
	kind := src.Kind
	if kind == fleet.SourceDetected {
		var err error
		if kind, err = render.Detect(ctx, c.tree, src.Path, src.Globs); err != nil {
			return imageset.Request{}, err
		}
	}
	return imageset.Request{Kind: kind, Path: src.Path, Globs: src.Globs, Helm: src.Helm, Limits: c.svc.cfg.RenderLimits}, nil
}
