package restapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type operationControl interface {
	Operations(ctx context.Context, p auth.Principal, tenant string, f store.OperationFilter) ([]fleet.Operation, error)
	Operation(ctx context.Context, p auth.Principal, tenant string, id fleet.OperationID) (fleet.Operation, error)
}

var operations = resource{"operation", tenant + "/operations"}

type (
	listOperationsInput struct {
		InTenant
		Paging
		Kind  string `query:"kind" maxLength:"63" doc:"Kind of the resource, such as deployment."`
		Name  string `query:"name" maxLength:"253" doc:"Name of the resource."`
		State string `query:"state" enum:"Waiting,InProgress,Completed,Failed"`
	}
	operationInput struct {
		InTenant
		Operation string `path:"operation" maxLength:"64" doc:"ID of the operation."`
	}
)

func (in *operationInput) at() (string, string) { return in.Tenant, in.Operation }

func (a *api) registerOperations() {
	register(a, operation("list-operations", http.MethodGet, operations.path, "List operations, newest first", http.StatusOK), operations, a.listOperations)
	register(a, operation("get-operation", http.MethodGet, operations.path+"/{operation}", "Read an operation", http.StatusOK), operations, a.getOperation)
}

func (a *api) listOperations(ctx context.Context, p auth.Principal, in *listOperationsInput) (*listOutput[apiv1.Operation], error) {
	found, err := a.control.Operations(ctx, p, in.Tenant, store.OperationFilter{
		Kind: in.Kind, Name: in.Name, State: fleet.OperationState(in.State), Before: fleet.OperationID(in.After), Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, operationJSON, func(o fleet.Operation) string { return string(o.ID) }), nil
}

func (a *api) getOperation(ctx context.Context, p auth.Principal, in *operationInput) (*plain[apiv1.Operation], error) {
	found, err := a.control.Operation(ctx, p, in.Tenant, fleet.OperationID(in.Operation))
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Operation]{operationJSON(found)}, nil
}

func operationAccepted(tenantName string, o fleet.Operation) *accepted[apiv1.Operation] {
	return &accepted[apiv1.Operation]{Location: operationURL(tenantName, o.ID), Body: operationJSON(o)}
}

func operationURL(tenantName string, id fleet.OperationID) string {
	return strings.ReplaceAll(operations.path, "{tenant}", tenantName) + "/" + string(id)
}

func operationJSON(o fleet.Operation) apiv1.Operation {
	return apiv1.Operation{
		ID: string(o.ID), Action: o.Action, Kind: o.Kind, Name: o.Name, ResourceID: o.ResourceID,
		State: string(o.State), Message: o.Message, By: o.By,
		CreatedAt: utc(o.CreatedAt), UpdatedAt: utc(o.UpdatedAt), FinishedAt: utc(o.FinishedAt),
	}
}
