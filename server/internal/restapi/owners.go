package restapi

import (
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// managedJSON returns the Kubernetes resource that created something; nil if there is none.
func managedJSON(o *fleet.Owned) *apiv1.ManagedBy {
	if o == nil {
		return nil
	}
	return &apiv1.ManagedBy{
		Kind: o.Owner.Kind, Namespace: o.Owner.Namespace, Name: o.Owner.Name, UID: o.Owner.UID, MissingSince: utc(o.MissingSince),
	}
}
