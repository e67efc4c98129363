package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// OwnerError means that a resource cannot be changed in this way because of the Kubernetes resource that declares it, or
// because none does. Nothing was changed. It wraps a ConflictError.
type OwnerError struct {
	Reason  fleet.Reason
	Message string
}

func (e *OwnerError) Error() string { return e.Message }

// Unwrap returns a ConflictError.
func (e *OwnerError) Unwrap() error { return &fleet.ConflictError{Reason: e.Message} }

func ownerConflict(reason fleet.Reason, format string, args ...any) error {
	return &OwnerError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// resource is a resource that may have an owner.
type resource struct {
	tenant fleet.TenantID
	kind   fleet.OwnedKind
	id     string
	name   string // for messages
}

func deploymentResource(d fleet.Deployment) resource {
	return resource{d.TenantID, fleet.OwnedDeployment, string(d.ID), d.Name}
}

func agentResource(a fleet.Agent) resource {
	return resource{a.TenantID, fleet.OwnedAgent, string(a.ID), a.Name}
}

func environmentResource(e fleet.Environment) resource {
	return resource{e.TenantID, fleet.OwnedEnvironment, string(e.ID), e.Name}
}

func credentialResource(c fleet.Credential) resource {
	return resource{c.TenantID, fleet.OwnedCredential, string(c.ID), c.Name}
}

func runResource(r fleet.SyncRun) resource {
	return resource{r.TenantID, fleet.OwnedRun, string(r.ID), fmt.Sprintf("%s/%d", r.Deployment, r.Seq)}
}

// own records the Kubernetes resource for which p creates a resource, if there is one.
func own(ctx context.Context, tx store.Tx, p auth.Principal, r resource) error {
	if p.Owner.IsZero() {
		return nil
	}
	return tx.Owners().Put(ctx, fleet.Owned{TenantID: r.tenant, Kind: r.kind, ID: r.id, Owner: p.Owner})
}

// ownerOf returns the owner of a resource; ok is false if it has none.
func ownerOf(ctx context.Context, tx store.Tx, r resource) (owned fleet.Owned, ok bool, err error) {
	found, err := tx.Owners().Of(ctx, r.tenant, r.kind, []string{r.id})
	if err != nil || len(found) == 0 {
		return fleet.Owned{}, false, err
	}
	return found[0], true, nil
}

// checkOwner refuses a change of a resource by any other than its owner. doing is the change, as in "changed", for the
// message. A Kubernetes resource may change what another one of the same name created if it replaced that one, or if that
// one is missing; see observe.
func checkOwner(ctx context.Context, tx store.Tx, p auth.Principal, r resource, doing string) error {
	owned, ok, err := ownerOf(ctx, tx, r)
	if err != nil || !ok || owned.Owner.UID == p.Owner.UID {
		return withoutOwner(err, ok, p, r)
	}
	switch {
	case p.Owner.IsZero() && owned.MissingSince.IsZero():
		return ownedByResource(owned, r, doing)
	case p.Owner.IsZero():
		return ownerConflict(fleet.ReasonOwnerMissing, "%s %q was created by %s, which is missing: create it again, or delete the %s", r.kind, r.name, owned.Owner, r.kind)
	case !owned.Owner.Same(p.Owner):
		return ownerConflict(fleet.ReasonNameInUse, "%s %q was created by %s: give %s another name", r.kind, r.name, owned.Owner, p.Owner)
	case owned.MissingSince.IsZero() && p.Owner.Created <= owned.Owner.Created:
		return ownerConflict(fleet.ReasonNameInUse, "%s %q was created by another %s, with UID %s, which is not known to be missing", r.kind, r.name, owned.Owner, owned.Owner.UID)
	}
	return nil
}

// checkOwnerDeletes refuses a deletion of a resource by any other than its owner. If the owner is missing, callers that do
// not act for a Kubernetes resource may delete it. Another Kubernetes resource of the same name may not.
func checkOwnerDeletes(ctx context.Context, tx store.Tx, p auth.Principal, r resource) error {
	owned, ok, err := ownerOf(ctx, tx, r)
	if err != nil || !ok || owned.Owner.UID == p.Owner.UID {
		return withoutOwner(err, ok, p, r)
	}
	switch {
	case p.Owner.IsZero() && owned.MissingSince.IsZero():
		return ownedByResource(owned, r, "deleted")
	case p.Owner.IsZero():
		return nil
	}
	return ownerConflict(fleet.ReasonNameInUse, "%s %q was created by another resource, %s with UID %s", r.kind, r.name, owned.Owner, owned.Owner.UID)
}

// withoutOwner refuses a Kubernetes resource for something that none created; ok reports whether it has an owner.
func withoutOwner(err error, ok bool, p auth.Principal, r resource) error {
	if err != nil || ok || p.Owner.IsZero() {
		return err
	}
	return ownerConflict(fleet.ReasonNameInUse, "%s %q exists and was not created by a Kubernetes resource: delete it, or give %s another name", r.kind, r.name, p.Owner)
}

func ownedByResource(owned fleet.Owned, r resource, doing string) error {
	return ownerConflict(fleet.ReasonOwnedByResource, "%s %q was created by %s and can only be %s there", r.kind, r.name, owned.Owner, doing)
}

// observe records that the owner of a resource has the generation and the UID of p. The caller has checked that the
// resource is as p declares it.
func observe(ctx context.Context, tx store.Tx, p auth.Principal, r resource) error {
	if p.Owner.IsZero() {
		return nil
	}
	owned, ok, err := ownerOf(ctx, tx, r)
	if err != nil || (ok && owned.Owner == p.Owner && owned.MissingSince.IsZero()) {
		return err
	}
	return own(ctx, tx, p, r)
}

// observeNewer is observe if p is not older than what was observed.
func observeNewer(ctx context.Context, tx store.Tx, p auth.Principal, r resource) error {
	owned, ok, err := ownerOf(ctx, tx, r)
	if err != nil || (ok && older(p.Owner, owned.Owner)) {
		return err
	}
	return observe(ctx, tx, p, r)
}

// checkGeneration refuses a different spec from a resource that is older than what was applied from it before: its API
// server was probably restored from a backup, and the older spec may delete objects. A replica that does not know yet that
// it lost the lead is refused as well.
func checkGeneration(ctx context.Context, tx store.Tx, p auth.Principal, r resource) error {
	if p.Owner.IsZero() || p.AcceptRewound {
		return nil
	}
	owned, ok, err := ownerOf(ctx, tx, r)
	if err != nil || !ok || !older(p.Owner, owned.Owner) {
		return err
	}
	return ownerConflict(fleet.ReasonResourceRewound,
		"generation %d of %s differs from generation %d, which is in force: the API server was probably restored from a backup; nothing was changed",
		p.Owner.Generation, p.Owner, owned.Owner.Generation)
}

// older reports whether a resource is older than the one that was observed.
func older(o, observed fleet.Owner) bool {
	if o.UID == observed.UID {
		return o.Generation < observed.Generation
	}
	return o.Created < observed.Created
}
