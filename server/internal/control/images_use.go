package control

import (
	"context"
	"strings"
	"unicode"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/imageset"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/imageupdate"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func checkSetImages(req imageupdate.SetImages) error {
	if len(req.Images) == 0 || len(req.Images) > imageset.MaxChanges {
		return fleet.Invalid("images", "between 1 and %d images are required", imageset.MaxChanges)
	}
	if len(req.Message) > maxImageMessage || strings.ContainsFunc(req.Message, badInMessage) {
		return fleet.Invalid("message", "must be text of at most %d bytes", maxImageMessage)
	}
	if strings.HasPrefix(req.Branch, "refs/") {
		return fleet.Invalid("branch", "must be the name of a branch without refs/heads/")
	}
	return checkRevision("branch", req.Branch)
}

const maxImageMessage = 4096

func badInMessage(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// SetImages commits new images to the branch that a deployment follows; see [imageupdate.Updater.SetImages].
func (s *Service) SetImages(ctx context.Context, p auth.Principal, tenant, name string, req imageupdate.SetImages) (imageupdate.ImageUpdate, error) {
	if err := checkSetImages(req); err != nil {
		return imageupdate.ImageUpdate{}, err
	}
	return s.images.SetImages(ctx, p, func(tx store.Tx) (fleet.Tenant, error) { return deployable(ctx, tx, p, tenant) }, name, req)
}

// Images lists the images in the source of a deployment, and the commit that was read.
func (s *Service) Images(ctx context.Context, p auth.Principal, tenant, name string) ([]imageset.Place, string, error) {
	return s.images.List(ctx, func(tx store.Tx) (fleet.Tenant, error) { return readable(ctx, tx, p, tenant) }, name)
}

// imageUseCases implements the interface of imageupdate with the use cases.
type imageUseCases struct{ s *Service }

func (i imageUseCases) Access(ctx context.Context, repo fleet.Repository) (gitsource.Access, error) {
	return i.s.access(ctx, repo)
}

func (i imageUseCases) RecordImages(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment, what string) error {
	return i.s.record(ctx, tx, p, d, "deployment.setImages", fleet.ReasonImagesSet, what)
}
