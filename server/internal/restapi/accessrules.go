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

type accessRuleControl interface {
	CreateAccessRule(ctx context.Context, p auth.Principal, tenant string, req control.CreateAccessRule) (fleet.AccessRule, error)
	AccessRules(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.AccessRule, error)
	AccessRule(ctx context.Context, p auth.Principal, tenant, name string) (fleet.AccessRule, error)
	UpdateAccessRule(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateAccessRule, match control.Match) (fleet.AccessRule, error)
	DeleteAccessRule(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) error
}

var accessRules = resource{"access rule", tenant + "/access-rules"}

func (a *api) registerAccessRules() {
	one := accessRules.path + "/{name}"
	register(a, operation("list-access-rules", http.MethodGet, accessRules.path, "List access rules by name", http.StatusOK), accessRules, a.listAccessRules)
	register(a, operation("create-access-rule", http.MethodPost, accessRules.path,
		"Let callers reach the API servers of clusters through the tunnels of agents", http.StatusCreated), accessRules, a.createAccessRule)
	register(a, operation("get-access-rule", http.MethodGet, one, "Read an access rule", http.StatusOK), accessRules, a.getAccessRule)
	register(a, operation("update-access-rule", http.MethodPatch, one,
		"Change an access rule; it applies to the next request of each caller", http.StatusOK, http.StatusPreconditionFailed), accessRules, a.updateAccessRule)
	register(a, operation("delete-access-rule", http.MethodDelete, one,
		"Delete an access rule: its subjects lose the access that no other rule gives them", http.StatusNoContent, http.StatusPreconditionFailed), accessRules, a.deleteAccessRule)
}

func (a *api) listAccessRules(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.AccessRule], error) {
	found, err := a.control.AccessRules(ctx, p, in.Tenant, in.page())
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, accessRuleJSON, func(r fleet.AccessRule) string { return r.Name }), nil
}

func (a *api) createAccessRule(ctx context.Context, p auth.Principal, in *createInput[apiv1.CreateAccessRule]) (*created[apiv1.AccessRule], error) {
	naming(ctx, in.Body.Name)
	made, err := a.control.CreateAccessRule(ctx, p, in.Tenant, control.CreateAccessRule{
		Name: in.Body.Name, Subjects: accessSubjects(in.Body.Subjects), AllAgents: in.Body.AllAgents,
		Agents: in.Body.Agents, Environments: in.Body.Environments, ReadOnly: in.Body.ReadOnly,
	})
	if err != nil {
		return nil, err
	}
	return &created[apiv1.AccessRule]{
		Location: infoFrom(ctx).about.list + "/" + made.Name, ETag: etag(made.ID, made.SpecRevision), Body: accessRuleJSON(made),
	}, nil
}

func (a *api) getAccessRule(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.AccessRule], error) {
	return accessRuleAnswer(a.control.AccessRule(ctx, p, in.Tenant, in.Name))
}

func (a *api) updateAccessRule(ctx context.Context, p auth.Principal, in *editInput[apiv1.UpdateAccessRule]) (*tagged[apiv1.AccessRule], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	req := control.UpdateAccessRule{
		AllAgents: in.Body.AllAgents, Agents: givenList(in.Body.Agents), Environments: givenList(in.Body.Environments), ReadOnly: in.Body.ReadOnly,
	}
	if in.Body.Subjects != nil {
		req.Subjects = new(accessSubjects(in.Body.Subjects))
	}
	return accessRuleAnswer(a.control.UpdateAccessRule(ctx, p, in.Tenant, in.Name, req, match))
}

func (a *api) deleteAccessRule(ctx context.Context, p auth.Principal, in *deleteInput) (*struct{}, error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return nil, a.control.DeleteAccessRule(ctx, p, in.Tenant, in.Name, match)
}

func accessRuleAnswer(r fleet.AccessRule, err error) (*tagged[apiv1.AccessRule], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.AccessRule]{ETag: etag(r.ID, r.SpecRevision), Body: accessRuleJSON(r)}, nil
}

func accessSubjects(list []apiv1.AccessSubject) []fleet.AccessSubject {
	out := make([]fleet.AccessSubject, len(list))
	for i, x := range list {
		out[i] = fleet.AccessSubject{Kind: fleet.AccessSubjectKind(x.Kind), Name: x.Name}
	}
	return out
}

func accessRuleJSON(r fleet.AccessRule) apiv1.AccessRule {
	out := apiv1.AccessRule{
		ID: string(r.ID), Name: r.Name, Subjects: make([]apiv1.AccessSubject, 0, len(r.Subjects)), AllAgents: r.AllAgents,
		ReadOnly: r.ReadOnly, SpecRevision: r.SpecRevision, CreatedAt: utc(r.CreatedAt),
	}
	for _, x := range r.Subjects {
		out.Subjects = append(out.Subjects, apiv1.AccessSubject{Kind: string(x.Kind), Name: x.Name})
	}
	for _, x := range r.Agents {
		out.Agents = append(out.Agents, x.Name)
	}
	for _, x := range r.Environments {
		out.Environments = append(out.Environments, x.Name)
	}
	return out
}
