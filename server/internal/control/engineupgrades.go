package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

const (
	maxUpgradeInstances   = 100
	defaultUpgradeTimeout = 10 * time.Minute
	maxUpgradeTimeout     = 24 * time.Hour
)

// CreateEngineUpgrade is the request to upgrade instances of Argo CD, one after another.
type CreateEngineUpgrade struct {
	Name      string
	Revision  string
	Timeout   time.Duration // for each instance; 0 means 10 minutes
	Instances []EngineUpgradeInstance
}

// EngineUpgradeInstance names one Argo CD by its agent, the deployment that installs it, and the deployment that checks it.
type EngineUpgradeInstance struct{ Agent, Deployment, Canary string }

// CreateEngineUpgrade starts an upgrade. The steps are those of package engineupgrade.
func (s *Service) CreateEngineUpgrade(ctx context.Context, p auth.Principal, tenant string, req CreateEngineUpgrade) (fleet.EngineUpgrade, error) {
	if err := checkEngineUpgrade(req); err != nil {
		return fleet.EngineUpgrade{}, err
	}
	u := fleet.EngineUpgrade{
		ID: fleet.NewEngineUpgradeID(), Name: req.Name, Revision: req.Revision, Timeout: cmp.Or(req.Timeout, defaultUpgradeTimeout),
		Phase: fleet.EngineUpgradeRunning, Reason: fleet.ReasonEngineUpgradeRunning, By: p.Name, CreatedAt: s.cfg.Now(),
	}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		u.TenantID, u.Instances = t.ID, nil
		for n, asked := range req.Instances {
			instance, err := resolveInstance(ctx, tx, p, t.ID, fmt.Sprintf("instances[%d]", n), asked)
			if err != nil {
				return err
			}
			u.Instances = append(u.Instances, instance)
		}
		if err := checkInstancesFree(ctx, tx, u); err != nil {
			return err
		}
		if err := tx.EngineUpgrades().Create(ctx, u); err != nil {
			return fmt.Errorf("engine upgrade %q: %w", u.Name, err)
		}
		if err := s.auditUpgrade(ctx, tx, p, u, "engine-upgrade.create", fmt.Sprintf("to %s, %s", u.Revision, wording.Count(len(u.Instances), "instance"))); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: t.ID, Type: fleet.EventNormal, Reason: fleet.ReasonEngineUpgradeStarted,
			Message: fmt.Sprintf("engine upgrade %q to %s started by %s", u.Name, u.Revision, p.Name),
		})
	})
	return u, err
}

func checkEngineUpgrade(req CreateEngineUpgrade) error {
	if err := fleet.CheckName("name", req.Name); err != nil {
		return err
	}
	if req.Revision == "" {
		return fleet.Invalid("revision", "the revision to install is required: a tag, a branch or a commit")
	}
	if err := checkRevision("revision", req.Revision); err != nil {
		return err
	}
	if req.Timeout < 0 || req.Timeout > maxUpgradeTimeout || req.Timeout > 0 && req.Timeout < time.Second {
		return fleet.Invalid("timeoutSeconds", "must be between 1 second and %s", maxUpgradeTimeout)
	}
	if len(req.Instances) == 0 || len(req.Instances) > maxUpgradeInstances {
		return fleet.Invalid("instances", "between 1 and %d instances are required", maxUpgradeInstances)
	}
	for n, i := range req.Instances {
		if slices.ContainsFunc(req.Instances[:n], func(o EngineUpgradeInstance) bool { return o.Agent == i.Agent || o.Deployment == i.Deployment }) {
			return fleet.Invalid(fmt.Sprintf("instances[%d]", n), "agent %q or deployment %q is listed twice", i.Agent, i.Deployment)
		}
	}
	return nil
}

// checkInstancesFree refuses an upgrade of instances that another unfinished upgrade has.
func checkInstancesFree(ctx context.Context, tx store.Tx, u fleet.EngineUpgrade) error {
	open, err := tx.EngineUpgrades().Open(ctx, u.TenantID)
	if err != nil {
		return err
	}
	for _, other := range open {
		for _, taken := range other.Instances {
			for _, i := range u.Instances {
				if taken.AgentID == i.AgentID || taken.DeploymentID == i.DeploymentID {
					return fleet.Conflict("engine upgrade %q is upgrading the instance of agent %q: wait for it, or halt it", other.Name, taken.Agent)
				}
			}
		}
	}
	return nil
}

// notUpgrading refuses a run of a deployment that an unfinished upgrade moves.
func notUpgrading(ctx context.Context, tx store.Tx, d fleet.Deployment) error {
	open, err := tx.EngineUpgrades().Open(ctx, d.TenantID)
	if err != nil {
		return err
	}
	for _, u := range open {
		if slices.ContainsFunc(u.Instances, func(i fleet.EngineUpgradeInstance) bool { return i.DeploymentID == d.ID }) {
			return fleet.Conflict("engine upgrade %q decides on the revision of deployment %q: wait for it, or halt it", u.Name, d.Name)
		}
	}
	return nil
}

// EngineUpgrades lists upgrades by name.
func (s *Service) EngineUpgrades(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.EngineUpgrade, error) {
	var out []fleet.EngineUpgrade
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.EngineUpgrades().List(ctx, t.ID, page)
		return err
	})
	return out, err
}

// EngineUpgrade returns one upgrade.
func (s *Service) EngineUpgrade(ctx context.Context, p auth.Principal, tenant, name string) (fleet.EngineUpgrade, error) {
	var out fleet.EngineUpgrade
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if out, err = tx.EngineUpgrades().ByName(ctx, t.ID, name); err != nil {
			return fmt.Errorf("engine upgrade %q: %w", name, err)
		}
		return nil
	})
	return out, err
}

// HaltEngineUpgrade ends an upgrade after its current instance, or after that instance is rolled back. Later instances are
// not touched.
func (s *Service) HaltEngineUpgrade(ctx context.Context, p auth.Principal, tenant, name string, how fleet.EngineUpgradeHalt) (fleet.EngineUpgrade, error) {
	var out fleet.EngineUpgrade
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if out, err = tx.EngineUpgrades().ByName(ctx, t.ID, name); err != nil {
			return fmt.Errorf("engine upgrade %q: %w", name, err)
		}
		switch {
		case out.Phase.Done():
			return fleet.Conflict("engine upgrade %q is done: it is %s", name, out.Phase)
		case out.Halt == how || out.Halt == fleet.HaltRollBack:
			return nil
		}
		out.Halt, out.HaltedBy = how, p.Name
		if err := tx.EngineUpgrades().Update(ctx, out); err != nil {
			return err
		}
		if err := s.auditUpgrade(ctx, tx, p, out, "engine-upgrade.halt", string(how)); err != nil {
			return err
		}
		out, err = tx.EngineUpgrades().Get(ctx, t.ID, out.ID)
		return err
	})
	return out, err
}

func (s *Service) auditUpgrade(ctx context.Context, tx store.Tx, p auth.Principal, u fleet.EngineUpgrade, action, detail string) error {
	return s.audit(ctx, tx, p, fleet.AuditEvent{TenantID: u.TenantID, Action: action, Kind: "engine-upgrade", Name: u.Name, ID: string(u.ID), Detail: detail})
}
