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

type credentialControl interface {
	Credentials(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.Credential, error)
	Credential(ctx context.Context, p auth.Principal, tenant, name string) (fleet.Credential, error)
	CreateCredential(ctx context.Context, p auth.Principal, tenant string, req control.CreateCredential) (fleet.Credential, error)
	UpdateCredential(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateCredential, match control.Match) (fleet.Credential, error)
	DeleteCredential(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) error
}

var credentials = resource{"credential", tenant + "/credentials"}

func (a *api) registerCredentials() {
	one := credentials.path + "/{name}"
	register(a, operation("list-credentials", http.MethodGet, credentials.path, "List credentials by name, without secrets", http.StatusOK), credentials, a.listCredentials)
	register(a, operation("create-credential", http.MethodPost, credentials.path, "Create a credential for Git", http.StatusCreated), credentials, a.createCredential)
	register(a, operation("get-credential", http.MethodGet, one, "Read a credential, without its secret", http.StatusOK), credentials, a.getCredential)
	register(a, operation("update-credential", http.MethodPatch, one,
		"Change a credential: every repository that uses it is read again", http.StatusOK, http.StatusPreconditionFailed), credentials, a.updateCredential)
	register(a, operation("delete-credential", http.MethodDelete, one,
		"Delete a credential that no repository uses", http.StatusNoContent, http.StatusPreconditionFailed), credentials, a.deleteCredential)
}

func (a *api) listCredentials(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.Credential], error) {
	found, err := a.control.Credentials(ctx, p, in.Tenant, in.page())
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, credentialJSON, func(c fleet.Credential) string { return c.Name }), nil
}

func (a *api) createCredential(ctx context.Context, p auth.Principal, in *createInput[apiv1.CreateCredential]) (*created[apiv1.Credential], error) {
	naming(ctx, in.Body.Name)
	made, err := a.control.CreateCredential(ctx, p, in.Tenant, control.CreateCredential{
		Name: in.Body.Name, Kind: fleet.CredentialKind(in.Body.Kind),
		Username: in.Body.Username, Secret: in.Body.Secret, KnownHosts: in.Body.KnownHosts,
	})
	if err != nil {
		return nil, err
	}
	return &created[apiv1.Credential]{
		Location: infoFrom(ctx).about.list + "/" + made.Name, ETag: etag(made.ID, made.SpecRevision), Body: credentialJSON(made),
	}, nil
}

func (a *api) getCredential(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.Credential], error) {
	return credentialAnswer(a.control.Credential(ctx, p, in.Tenant, in.Name))
}

func (a *api) updateCredential(ctx context.Context, p auth.Principal, in *editInput[apiv1.UpdateCredential]) (*tagged[apiv1.Credential], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return credentialAnswer(a.control.UpdateCredential(ctx, p, in.Tenant, in.Name, control.UpdateCredential(in.Body), match))
}

func (a *api) deleteCredential(ctx context.Context, p auth.Principal, in *deleteInput) (*struct{}, error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return nil, a.control.DeleteCredential(ctx, p, in.Tenant, in.Name, match)
}

func credentialAnswer(c fleet.Credential, err error) (*tagged[apiv1.Credential], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.Credential]{ETag: etag(c.ID, c.SpecRevision), Body: credentialJSON(c)}, nil
}

func credentialJSON(c fleet.Credential) apiv1.Credential {
	return apiv1.Credential{
		ID: string(c.ID), Name: c.Name, Kind: string(c.Kind), Username: c.Username, KnownHosts: c.KnownHosts,
		SpecRevision: c.SpecRevision, CreatedAt: utc(c.CreatedAt), UpdatedAt: utc(c.UpdatedAt),
	}
}
