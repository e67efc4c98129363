package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type engineUpgradeControl interface {
	CreateEngineUpgrade(ctx context.Context, p auth.Principal, tenant string, req control.CreateEngineUpgrade) (fleet.EngineUpgrade, error)
	EngineUpgrades(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.EngineUpgrade, error)
	EngineUpgrade(ctx context.Context, p auth.Principal, tenant, name string) (fleet.EngineUpgrade, error)
	HaltEngineUpgrade(ctx context.Context, p auth.Principal, tenant, name string, how fleet.EngineUpgradeHalt) (fleet.EngineUpgrade, error)
}

var engineUpgrades = resource{"engine upgrade", tenant + "/engine-upgrades"}

func (a *api) registerEngineUpgrades() {
	one := engineUpgrades.path + "/{name}"
	register(a, operation("list-engine-upgrades", http.MethodGet, engineUpgrades.path, "List upgrades of Argo CD by name", http.StatusOK), engineUpgrades, a.listEngineUpgrades)
	register(a, operation("create-engine-upgrade", http.MethodPost, engineUpgrades.path,
		"Upgrade instances of Argo CD, one after another; each is checked before the next", http.StatusCreated), engineUpgrades, a.createEngineUpgrade)
	register(a, operation("get-engine-upgrade", http.MethodGet, one, "Read an upgrade of Argo CD", http.StatusOK), engineUpgrades, a.getEngineUpgrade)
	register(a, operation("halt-engine-upgrade", http.MethodPost, one+"/halt",
		"Halt an upgrade of Argo CD: the current instance is finished or rolled back, and later ones are not touched", http.StatusOK), engineUpgrades, a.haltEngineUpgrade)
}

func (a *api) listEngineUpgrades(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.EngineUpgrade], error) {
	found, err := a.control.EngineUpgrades(ctx, p, in.Tenant, in.page())
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, engineUpgradeJSON, func(u fleet.EngineUpgrade) string { return u.Name }), nil
}

func (a *api) createEngineUpgrade(ctx context.Context, p auth.Principal, in *createInput[apiv1.CreateEngineUpgrade]) (*created[apiv1.EngineUpgrade], error) {
	naming(ctx, in.Body.Name)
	req := control.CreateEngineUpgrade{Name: in.Body.Name, Revision: in.Body.Revision, Timeout: time.Duration(in.Body.TimeoutSeconds) * time.Second}
	for _, i := range in.Body.Instances {
		req.Instances = append(req.Instances, control.EngineUpgradeInstance(i))
	}
	made, err := a.control.CreateEngineUpgrade(ctx, p, in.Tenant, req)
	if err != nil {
		return nil, err
	}
	return &created[apiv1.EngineUpgrade]{
		Location: infoFrom(ctx).about.list + "/" + made.Name, ETag: etag(made.ID, made.Step), Body: engineUpgradeJSON(made),
	}, nil
}

func (a *api) getEngineUpgrade(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.EngineUpgrade], error) {
	return engineUpgradeAnswer(a.control.EngineUpgrade(ctx, p, in.Tenant, in.Name))
}

func (a *api) haltEngineUpgrade(ctx context.Context, p auth.Principal, in *actInput[apiv1.HaltEngineUpgrade]) (*tagged[apiv1.EngineUpgrade], error) {
	how := fleet.HaltAfterInstance
	if in.Body != nil && in.Body.RollBack {
		how = fleet.HaltRollBack
	}
	return engineUpgradeAnswer(a.control.HaltEngineUpgrade(ctx, p, in.Tenant, in.Name, how))
}

func engineUpgradeAnswer(u fleet.EngineUpgrade, err error) (*tagged[apiv1.EngineUpgrade], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.EngineUpgrade]{ETag: etag(u.ID, u.Step), Body: engineUpgradeJSON(u)}, nil
}

func engineUpgradeJSON(u fleet.EngineUpgrade) apiv1.EngineUpgrade {
	out := apiv1.EngineUpgrade{
		ID: string(u.ID), Name: u.Name, Revision: u.Revision, TimeoutSeconds: int(u.Timeout.Seconds()), Phase: string(u.Phase), Reason: string(u.Reason),
		Message: u.Message, Halt: string(u.Halt), HaltedBy: u.HaltedBy, By: u.By, CreatedAt: utc(u.CreatedAt), FinishedAt: utc(u.FinishedAt),
		Instances: make([]apiv1.EngineUpgradeInstance, 0, len(u.Instances)),
	}
	for _, i := range u.Instances {
		out.Instances = append(out.Instances, apiv1.EngineUpgradeInstance{
			Agent: i.Agent, Deployment: i.Deployment, Canary: i.Canary, Phase: string(i.Phase), Reason: string(i.Reason), Message: i.Message,
			Before: i.Before, BeforeCommit: i.BeforeCommit, Commit: i.Commit, Run: string(i.RunID),
			Deadline: utc(i.Deadline), StartedAt: utc(i.StartedAt), FinishedAt: utc(i.FinishedAt),
		})
	}
	return out
}
