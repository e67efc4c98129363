package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/imageset"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

type imageControl interface {
	SetImages(ctx context.Context, p auth.Principal, tenant, deployment string, req control.SetImages) (control.ImageUpdate, error)
	// Images lists where images are written, and the commit that was read.
	Images(ctx context.Context, p auth.Principal, tenant, deployment string) ([]imageset.Place, string, error)
}

type setImagesInput struct {
	Named
	Body apiv1.SetImages
}

func (a *api) registerImages() {
	register(a, operation("set-images", http.MethodPost, oneDeployment+"/images",
		"Commit new images to the repository of a deployment; the new commit on the branch deploys them", http.StatusOK), deployments, a.setImages)
	register(a, operation("list-images", http.MethodGet, oneDeployment+"/images",
		"List the images in the source of a deployment, at the newest commit", http.StatusOK, http.StatusConflict), deployments, a.listImages)
}

func (a *api) setImages(ctx context.Context, p auth.Principal, in *setImagesInput) (*plain[apiv1.ImageUpdate], error) {
	req := control.SetImages{Message: in.Body.Message, Branch: in.Body.Branch, DryRun: in.Body.DryRun}
	for _, i := range in.Body.Images {
		req.Images = append(req.Images, imageset.Change(i))
	}
	u, err := a.control.SetImages(ctx, p, in.Tenant, in.Name, req)
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.ImageUpdate]{apiv1.ImageUpdate{
		Changed: u.Commit != "", Places: placesJSON(u.Places), Base: u.Base, Commit: u.Commit, Branch: u.Branch, Protected: u.Protected, URL: u.URL,
	}}, nil
}

func (a *api) listImages(ctx context.Context, p auth.Principal, in *Named) (*plain[apiv1.Images], error) {
	places, commit, err := a.control.Images(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Images]{apiv1.Images{Commit: commit, Items: placesJSON(places)}}, nil
}

func placesJSON(places []imageset.Place) []apiv1.ImagePlace {
	out := make([]apiv1.ImagePlace, len(places))
	for i, p := range places {
		out[i] = apiv1.ImagePlace(p)
	}
	return out
}
