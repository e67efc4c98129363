package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type repositoryControl interface {
	Repositories(ctx context.Context, p auth.Principal, tenant string, f store.RepositoryFilter) ([]control.RepositoryView, error)
	Repository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) (control.RepositoryView, error)
	CreateRepository(ctx context.Context, p auth.Principal, tenant string, req control.CreateRepository) (control.RepositoryView, error)
	UpdateRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID, req control.UpdateRepository, match control.Match) (control.RepositoryView, error)
	DeleteRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID, match control.Match) error
	// RefreshRepository fetches from Git now.
	RefreshRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) error
	// Webhook returns the webhook settings for the Git host of a repository.
	Webhook(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) (control.Webhook, error)
}

var repositories = resource{"repository", tenant + "/repositories"}

type (
	// OneRepository is the input of requests about one repository.
	OneRepository struct {
		InTenant
		Repository string `path:"repository" maxLength:"64" doc:"ID of the repository."`
	}
	updateRepositoryInput struct {
		OneRepository
		Matching
		Body apiv1.UpdateRepository
	}
	deleteRepositoryInput struct {
		OneRepository
		Matching
	}
)

func (in *OneRepository) at() (string, string) { return in.Tenant, in.Repository }
func (in *OneRepository) id() fleet.RepositoryID {
	return fleet.RepositoryID(in.Repository)
}

func (a *api) registerRepositories() {
	one := repositories.path + "/{repository}"
	register(a, operation("list-repositories", http.MethodGet, repositories.path, "List repositories by URL", http.StatusOK), repositories, a.listRepositories)
	register(a, operation("create-repository", http.MethodPost, repositories.path,
		"Create a repository, for instance to give it a credential before anything is deployed from it", http.StatusCreated), repositories, a.createRepository)
	register(a, operation("get-repository", http.MethodGet, one, "Read a repository", http.StatusOK), repositories, a.getRepository)
	register(a, operation("update-repository", http.MethodPatch, one,
		"Change the credential, submodules, and signers of a repository", http.StatusOK, http.StatusPreconditionFailed), repositories, a.updateRepository)
	register(a, operation("delete-repository", http.MethodDelete, one,
		"Delete a repository that no deployment uses", http.StatusNoContent, http.StatusPreconditionFailed), repositories, a.deleteRepository)
	register(a, operation("refresh-repository", http.MethodPost, one+"/refresh", "Refresh the repository now", http.StatusNoContent), repositories, a.refreshRepository)
	// Not a GET: it returns a secret, which no GET does.
	register(a, operation("reveal-webhook", http.MethodPost, one+"/webhook",
		"Return the webhook settings for the Git host of a repository", http.StatusOK), repositories, a.revealWebhook)
}

func (a *api) listRepositories(ctx context.Context, p auth.Principal, in *listRepositoriesInput) (*listOutput[apiv1.Repository], error) {
	// A URL has slashes in it, so it is a key whole.
	views, err := a.control.Repositories(ctx, p, in.Tenant, store.RepositoryFilter{Page: store.Page{After: in.After, Limit: in.Limit + 1}, Reason: fleet.Reason(in.Reason)})
	if err != nil {
		return nil, err
	}
	return paged(views, in.Limit, a.repositoryJSON, func(v control.RepositoryView) string { return v.URL }), nil
}

// listRepositoriesInput is listInput with space for a URL.
type listRepositoriesInput struct {
	InTenant
	After  string `query:"after" maxLength:"4096" doc:"'next' of the previous page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Maximum number of items."`
	Reason string `query:"reason" maxLength:"64" pattern:"^[A-Za-z]*$" doc:"Reason of the state; see docs/reasons.md."`
}

func (a *api) createRepository(ctx context.Context, p auth.Principal, in *createInput[apiv1.CreateRepository]) (*created[apiv1.Repository], error) {
	naming(ctx, in.Body.URL)
	made, err := a.control.CreateRepository(ctx, p, in.Tenant, control.CreateRepository(in.Body))
	if err != nil {
		return nil, err
	}
	return &created[apiv1.Repository]{
		Location: infoFrom(ctx).about.list + "/" + string(made.ID), ETag: etag(made.ID, made.SpecRevision), Body: a.repositoryJSON(made),
	}, nil
}

func (a *api) getRepository(ctx context.Context, p auth.Principal, in *OneRepository) (*tagged[apiv1.Repository], error) {
	return a.repositoryAnswer(a.control.Repository(ctx, p, in.Tenant, in.id()))
}

func (a *api) updateRepository(ctx context.Context, p auth.Principal, in *updateRepositoryInput) (*tagged[apiv1.Repository], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return a.repositoryAnswer(a.control.UpdateRepository(ctx, p, in.Tenant, in.id(), control.UpdateRepository(in.Body), match))
}

func (a *api) deleteRepository(ctx context.Context, p auth.Principal, in *deleteRepositoryInput) (*struct{}, error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return nil, a.control.DeleteRepository(ctx, p, in.Tenant, in.id(), match)
}

func (a *api) refreshRepository(ctx context.Context, p auth.Principal, in *OneRepository) (*struct{}, error) {
	return nil, a.control.RefreshRepository(ctx, p, in.Tenant, in.id())
}

func (a *api) revealWebhook(ctx context.Context, p auth.Principal, in *OneRepository) (*plain[apiv1.Webhook], error) {
	infoFrom(ctx).again = true
	hook, err := a.control.Webhook(ctx, p, in.Tenant, in.id())
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Webhook]{apiv1.Webhook{URL: a.hookURL(hook.Repository), Secret: hook.Secret, SigningToken: signingToken(hook.Secret)}}, nil
}

func (a *api) repositoryAnswer(v control.RepositoryView, err error) (*tagged[apiv1.Repository], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.Repository]{ETag: etag(v.ID, v.SpecRevision), Body: a.repositoryJSON(v)}, nil
}

func (a *api) repositoryJSON(v control.RepositoryView) apiv1.Repository {
	return apiv1.Repository{
		ID: string(v.ID), URL: v.URL, Credential: v.Credential, Submodules: v.Submodules, Signers: v.Signers, Deployments: v.Deployments,
		CheckedAt: utc(v.CheckedAt), Reason: string(v.State()), Error: v.Error, Conditions: conditionsJSON(v.Conditions()), WebhookURL: a.hookURL(v.ID), SpecRevision: v.SpecRevision, CreatedAt: utc(v.CreatedAt),
	}
}

func (a *api) hookURL(id fleet.RepositoryID) string {
	external := ""
	if a.cfg.ExternalURL != nil {
		external = a.cfg.ExternalURL()
	}
	return external + base + "/hooks/" + string(id)
}
