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

type fleetControl interface {
	Fleet(ctx context.Context, p auth.Principal) (control.FleetView, error)
	Freeze(ctx context.Context, p auth.Principal, reason string) (fleet.Settings, error)
	Unfreeze(ctx context.Context, p auth.Principal) (fleet.Settings, error)
}

type memberControl interface {
	Members(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.Member, error)
	PutMember(ctx context.Context, p auth.Principal, tenant string, m fleet.Member) error
	RemoveMember(ctx context.Context, p auth.Principal, tenant string, kind fleet.MemberKind, subject string) error
}

const fleetPath = base + "/fleet"

var (
	wholeFleet = resource{"fleet", fleetPath}
	members    = resource{"member", tenant + "/members"}
)

type (
	freezeInput struct{ Body *apiv1.Suspend }
	// OneMember is the input of requests about one member.
	OneMember struct {
		InTenant
		Kind    string `path:"kind" enum:"person,group"`
		Subject string `path:"subject" maxLength:"253" doc:"Name of the person or the group at the identity provider."`
	}
	putMemberInput struct {
		OneMember
		Body apiv1.PutMember
	}
)

func (in *OneMember) at() (string, string) { return in.Tenant, in.Kind + "/" + in.Subject }

func (a *api) registerFleet() {
	register(a, operation("get-fleet", http.MethodGet, fleetPath, "Read the state of the whole fleet", http.StatusOK), wholeFleet, a.getFleet)
	register(a, operation("freeze-fleet", http.MethodPost, fleetPath+"/freeze",
		"Freeze the fleet: no target gets a new state, and running workloads are not affected", http.StatusOK), wholeFleet, a.freeze)
	register(a, operation("unfreeze-fleet", http.MethodPost, fleetPath+"/unfreeze", "End the freeze", http.StatusOK), wholeFleet, a.unfreeze)
}

func (a *api) getFleet(ctx context.Context, p auth.Principal, _ *struct{}) (*plain[apiv1.Fleet], error) {
	v, err := a.control.Fleet(ctx, p)
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Fleet]{apiv1.Fleet{
		Epoch: v.Epoch, Suspension: suspensionJSON(v.Suspension),
		Agents: v.Agents, Connected: v.Connected, Deployments: v.Deployments, Targets: v.Targets,
	}}, nil
}

func (a *api) freeze(ctx context.Context, p auth.Principal, in *freezeInput) (*plain[apiv1.FleetSettings], error) {
	return settingsAnswer(a.control.Freeze(ctx, p, reason(in.Body)))
}

func (a *api) unfreeze(ctx context.Context, p auth.Principal, _ *struct{}) (*plain[apiv1.FleetSettings], error) {
	return settingsAnswer(a.control.Unfreeze(ctx, p))
}

func settingsAnswer(s fleet.Settings, err error) (*plain[apiv1.FleetSettings], error) {
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.FleetSettings]{apiv1.FleetSettings{Epoch: s.Epoch, Suspension: suspensionJSON(s.Suspension)}}, nil
}

func (a *api) registerMembers() {
	one := members.path + "/{kind}/{subject}"
	register(a, operation("list-members", http.MethodGet, members.path, "List the members of a tenant and their roles", http.StatusOK), members, a.listMembers)
	register(a, operation("put-member", http.MethodPut, one, "Assign a role in a tenant", http.StatusNoContent), members, a.putMember)
	register(a, operation("remove-member", http.MethodDelete, one, "Remove a role in a tenant", http.StatusNoContent), members, a.removeMember)
}

func (a *api) listMembers(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.Member], error) {
	found, err := a.control.Members(ctx, p, in.Tenant, in.page())
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, memberJSON, func(m fleet.Member) string { return string(m.Kind) + "/" + m.Subject }), nil
}

func (a *api) putMember(ctx context.Context, p auth.Principal, in *putMemberInput) (*struct{}, error) {
	return nil, a.control.PutMember(ctx, p, in.Tenant, fleet.Member{
		Kind: fleet.MemberKind(in.Kind), Subject: in.Subject, Role: fleet.Role(in.Body.Role),
	})
}

func (a *api) removeMember(ctx context.Context, p auth.Principal, in *OneMember) (*struct{}, error) {
	return nil, a.control.RemoveMember(ctx, p, in.Tenant, fleet.MemberKind(in.Kind), in.Subject)
}

func memberJSON(m fleet.Member) apiv1.Member {
	return apiv1.Member{Kind: string(m.Kind), Subject: m.Subject, Role: string(m.Role), CreatedAt: utc(m.CreatedAt)}
}
