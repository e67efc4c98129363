package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// The use cases in this file are for the Kubernetes API. Their principals act for a Kubernetes resource: see
// auth.Principal.Owner.

// NamespaceTenant returns the tenant of a Kubernetes namespace, and creates it if there is none. A namespace that was
// deleted and created again has another UID and gets another tenant.
func (s *Service) NamespaceTenant(ctx context.Context, p auth.Principal, namespace fleet.Owner) (fleet.Tenant, error) {
	if err := fleetAdmin(p); err != nil {
		return fleet.Tenant{}, err
	}
	var out fleet.Tenant
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		out, err = tenantOfNamespace(ctx, tx, namespace.UID)
		return err
	})
	if !errors.Is(err, store.ErrNotFound) {
		return out, err
	}
	err = s.store.Update(ctx, func(tx store.Tx) (err error) {
		if out, err = tenantOfNamespace(ctx, tx, namespace.UID); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		out = fleet.Tenant{ID: fleet.NewTenantID(), CreatedAt: s.cfg.Now()}
		if out.Name, err = freeTenantName(ctx, tx, namespace); err != nil {
			return err
		}
		if err := s.addTenant(ctx, tx, out); err != nil {
			return err
		}
		if err := tx.Owners().Put(ctx, fleet.Owned{TenantID: out.ID, Kind: fleet.OwnedTenant, ID: string(out.ID), Owner: namespace}); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, tenantEvent("tenant.create", out, "for "+namespace.String()))
	})
	return out, err
}

func tenantOfNamespace(ctx context.Context, tx store.Tx, uid string) (fleet.Tenant, error) {
	owned, err := tx.Owners().NamespaceAllTenants(ctx, uid)
	if err != nil {
		return fleet.Tenant{}, err
	}
	return tx.Tenants().Get(ctx, owned.TenantID)
}

// freeTenantName returns the name of the namespace. If another tenant has this name, it appends the start of the UID:
// a namespace never gets a tenant that something else created.
func freeTenantName(ctx context.Context, tx store.Tx, namespace fleet.Owner) (string, error) {
	_, err := tx.Tenants().ByName(ctx, namespace.Name)
	if errors.Is(err, store.ErrNotFound) {
		return namespace.Name, nil
	}
	const maxName, suffix = 63, 8
	return fmt.Sprintf("%.*s-%.*s", maxName-suffix-1, namespace.Name, suffix, namespace.UID), err
}

// ApplyDeployment creates a deployment, or changes it to exactly req. The same input twice changes nothing.
func (s *Service) ApplyDeployment(ctx context.Context, p auth.Principal, tenant string, req CreateDeployment) error {
	wanted, err := s.newDeployment(req)
	if err != nil {
		return err
	}
	edit := UpdateDeployment{
		Labels: &wanted.Labels, Source: &wanted.Source, Environment: &wanted.Environment, Namespace: &wanted.Namespace, Policy: &wanted.Policy,
		Suspend: &req.Suspend,
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		err := s.editDeployment(ctx, tx, p, tenant, req.Name, edit, Match{})
		if errors.Is(err, store.ErrNotFound) {
			return s.addDeployment(ctx, tx, p, tenant, wanted, req.Suspend)
		}
		return err
	})
}

// OwnedDeployment is a deployment that a Kubernetes resource created.
type OwnedDeployment struct {
	DeploymentView
	Revisions []fleet.Revision // the newest, newest first, without author and message; none while it is being deleted
	Run       *fleet.SyncRun   // the newest; nil if there is none
}

// OwnedDeployments returns the deployments that the Kubernetes resource of p created, including those that are being
// deleted, with the given number of revisions.
func (s *Service) OwnedDeployments(ctx context.Context, p auth.Principal, tenant string, revisions int) ([]OwnedDeployment, error) {
	var out []OwnedDeployment
	err := s.store.View(ctx, func(tx store.Tx) error {
		out = nil
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		owned, err := ownedBy(ctx, tx, t.ID, p.Owner, fleet.OwnedDeployment)
		if err != nil {
			return err
		}
		v := newViewer(tx, t.ID)
		for _, o := range owned {
			d, err := v.owned(ctx, fleet.DeploymentID(o.ID), revisions)
			if err != nil {
				return err
			}
			out = append(out, d)
		}
		return nil
	})
	return out, err
}

func (v *viewer) owned(ctx context.Context, id fleet.DeploymentID, revisions int) (OwnedDeployment, error) {
	d, err := v.tx.Deployments().Get(ctx, v.tenant, id)
	if err != nil {
		return OwnedDeployment{}, err
	}
	var out OwnedDeployment
	if out.DeploymentView, err = v.whole(ctx, v.tx, d); err != nil || !d.DeletedAt.IsZero() {
		return out, err
	}
	if out.Revisions, err = v.tx.Revisions().List(ctx, v.tenant, d.ID, store.Page{Limit: revisions}); err != nil {
		return out, err
	}
	runs, err := v.tx.Runs().OfDeployment(ctx, v.tenant, d.ID, store.RunFilter{Page: store.Page{Limit: 1}})
	if len(runs) > 0 {
		out.Run = &runs[0]
	}
	return out, err
}

// ownedBy returns the resources of one kind that an owner created.
func ownedBy(ctx context.Context, tx store.Tx, tenant fleet.TenantID, owner fleet.Owner, kind fleet.OwnedKind) ([]fleet.Owned, error) {
	all, err := tx.Owners().ByOwner(ctx, tenant, owner.Kind, owner.Name)
	var out []fleet.Owned
	for _, o := range all {
		if o.Kind == kind && o.Owner.UID == owner.UID {
			out = append(out, o)
		}
	}
	return out, err
}

// Owned lists the resources of all tenants that Kubernetes resources created, without sync runs.
func (s *Service) Owned(ctx context.Context, p auth.Principal) ([]fleet.Owned, error) {
	if err := fleetAdmin(p); err != nil {
		return nil, err
	}
	var out []fleet.Owned
	err := s.store.View(ctx, func(tx store.Tx) error {
		out = nil
		for _, kind := range []fleet.OwnedKind{
			fleet.OwnedTenant, fleet.OwnedAgent, fleet.OwnedEnvironment, fleet.OwnedCredential, fleet.OwnedDeployment,
		} {
			found, err := tx.Owners().ListAllTenants(ctx, kind)
			if err != nil {
				return err
			}
			out = append(out, found...)
		}
		return nil
	})
	return out, err
}

// OwnerMissing records that a Kubernetes resource does not exist, although nobody deleted it while the server watched. What
// it created stays as it is, and the deletion of what it had deleted completes: see ReleaseProtected.
func (s *Service) OwnerMissing(ctx context.Context, p auth.Principal, tenant fleet.TenantID, owner fleet.Owner) error {
	if err := fleetAdmin(p); err != nil {
		return err
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		owned, err := tx.Owners().ByOwner(ctx, tenant, owner.Kind, owner.Name)
		if err != nil {
			return err
		}
		for _, o := range owned {
			if o.Owner.UID != owner.UID || !o.MissingSince.IsZero() || o.Kind == fleet.OwnedRun {
				continue
			}
			if err := s.ownerMissing(ctx, tx, p, o); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Service) ownerMissing(ctx context.Context, tx store.Tx, p auth.Principal, o fleet.Owned) error {
	o.MissingSince = s.cfg.Now()
	if o.Kind != fleet.OwnedDeployment {
		return tx.Owners().Put(ctx, o)
	}
	d, err := tx.Deployments().Get(ctx, o.TenantID, fleet.DeploymentID(o.ID))
	if err != nil {
		return ignoreMissing(err)
	}
	if !d.DeletedAt.IsZero() { // it is being deleted, as its owner was, and nobody waits for what it holds
		return s.releaseProtected(ctx, tx, p, d)
	}
	if err := tx.Owners().Put(ctx, o); err != nil {
		return err
	}
	return s.tell(ctx, tx, fleet.Event{
		TenantID: o.TenantID, Type: fleet.EventWarning, Reason: fleet.ReasonOwnerMissing, Deployment: d.Name,
		Message: fmt.Sprintf("deployment %q: %s, which created it, is missing; nothing was deleted", d.Name, o.Owner),
	})
}

// OwnedRuns returns the sync runs that the Kubernetes resource of p created.
func (s *Service) OwnedRuns(ctx context.Context, p auth.Principal, tenant string) ([]fleet.SyncRun, error) {
	var out []fleet.SyncRun
	err := s.store.View(ctx, func(tx store.Tx) error {
		out = nil
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		owned, err := ownedBy(ctx, tx, t.ID, p.Owner, fleet.OwnedRun)
		if err != nil {
			return err
		}
		for _, o := range owned {
			run, err := tx.Runs().Get(ctx, t.ID, fleet.RunID(o.ID))
			if err != nil {
				return err
			}
			out = append(out, run)
		}
		return nil
	})
	return out, err
}

// Lead calls run while this replica is the one for name; see [membership.Member.Lead].
func (s *Service) Lead(ctx context.Context, name string, run func(ctx context.Context)) {
	s.member.Lead(ctx, name, run)
}
