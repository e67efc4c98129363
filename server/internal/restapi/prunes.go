package restapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type pruneControl interface {
	// HeldPrunes lists by agent and object, starting after after.
	HeldPrunes(ctx context.Context, p auth.Principal, tenant, deployment, agent string, after store.HeldObject, limit int) ([]control.HeldPrune, error)
	ConfirmPrune(ctx context.Context, p auth.Principal, tenant, deployment string, req control.ConfirmPrune) (control.ConfirmedPrune, error)
}

type (
	heldPrunesInput struct {
		Named
		HeldPaging
		Agent string `query:"agent" maxLength:"253" doc:"Only on this agent."`
	}
	// HeldPaging is Paging with space for the full name of an object.
	HeldPaging struct {
		After string `query:"after" maxLength:"1500" doc:"'next' of the previous page."`
		Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Maximum number of items."`
	}
	confirmPruneInput struct {
		Named
		Body apiv1.ConfirmPrune
	}
)

func (a *api) registerPrunes() {
	register(a, operation("list-held-prunes", http.MethodGet, oneDeployment+"/held-prunes",
		"List the objects that left the source of a deployment and are kept until their deletion is confirmed", http.StatusOK), deployments, a.listHeldPrunes)
	register(a, operation("confirm-prune", http.MethodPost, oneDeployment+"/confirm-prune",
		"Confirm held deletions, only for the currently deployed revision", http.StatusOK), deployments, a.confirmPrune)
}

func (a *api) listHeldPrunes(ctx context.Context, p auth.Principal, in *heldPrunesInput) (*listOutput[apiv1.HeldPrune], error) {
	after, err := heldAfter(in.After)
	if err != nil {
		return nil, err
	}
	found, err := a.control.HeldPrunes(ctx, p, in.Tenant, in.Name, in.Agent, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, heldPruneJSON, nextHeld), nil
}

func (a *api) confirmPrune(ctx context.Context, p auth.Principal, in *confirmPruneInput) (*plain[apiv1.ConfirmedPrune], error) {
	done, err := a.control.ConfirmPrune(ctx, p, in.Tenant, in.Name, control.ConfirmPrune(in.Body))
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.ConfirmedPrune]{apiv1.ConfirmedPrune{Objects: append([]string{}, done.Objects...), Deletions: done.Deletions, Targets: done.Targets}}, nil
}

func heldPruneJSON(h control.HeldPrune) apiv1.HeldPrune {
	return apiv1.HeldPrune{
		Target: string(h.Target), Agent: h.Agent, Object: h.String(), Reason: string(h.Reason), Message: h.Message, Commit: h.Commit, Deleted: h.Deleted, Current: h.Current, Confirmed: h.Confirmed,
	}
}

// nextHeld returns the start of the page after h: no part of it contains a slash.
func nextHeld(h control.HeldPrune) string {
	return strings.Join([]string{h.Agent, string(h.Target), h.Kind, h.Group, h.Namespace, h.Name}, "/")
}

func heldAfter(cursor string) (store.HeldObject, error) {
	if cursor == "" {
		return store.HeldObject{}, nil
	}
	parts := strings.SplitN(cursor, "/", 6)
	if len(parts) != 6 {
		return store.HeldObject{}, notACursor()
	}
	return store.HeldObject{
		Agent: parts[0], Target: fleet.TargetID(parts[1]),
		ObjectStatus: fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Kind: parts[2], Group: parts[3], Namespace: parts[4], Name: parts[5]}},
	}, nil
}
