package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// pushEnvironments adds findings about push environments to which nothing can be deployed now.
func (e *examiner) pushEnvironments(ctx context.Context) error {
	list, err := e.tx.Environments().List(ctx, e.tenant.ID, store.Page{Limit: maxExamined})
	if err != nil {
		return err
	}
	var agents []fleet.Agent
	found := 0
	for _, env := range list {
		if env.Push == nil {
			continue
		}
		if agents == nil {
			if agents, err = listing.Agents(ctx, e.tx, e.tenant.ID, store.AgentFilter{}); err != nil {
				return err
			}
		}
		v, err := viewWith(ctx, e.tx, env, agents)
		if err != nil {
			return err
		}
		if v.Ready.Status == fleet.ConditionTrue {
			continue
		}
		if found++; found > maxFindings {
			e.out.Truncated = true
			break
		}
		e.pushEnvironment(v)
	}
	return nil
}

func (e *examiner) pushEnvironment(v EnvironmentView) {
	f := Finding{
		Part: PartEnvironments, Severity: SeverityProblem, Reason: v.Ready.Reason, Subject: v.Name,
		Message: fmt.Sprintf("is not ready (%s): %s", v.Ready.Reason, v.Ready.Message), Next: "kedge describe env " + v.Name,
	}
	switch info, known := v.Ready.Reason.Info(); {
	case v.Ready.Reason == fleet.ReasonInstanceMoving, v.Ready.Reason == fleet.ReasonEndpointNotChecked:
		f.Severity = SeverityNotice // it passes
	case v.Ready.Reason == fleet.ReasonNoEngineInstance:
		f.Next = "kedge agent set NAME --engine-instance, for an agent with Argo CD, or kedge agent enroll NAME --argocd-namespace NAMESPACE --engine-instance"
	case v.Ready.Reason == fleet.ReasonInstanceDisconnected:
		f.Next = "kedge describe agent " + v.Instance
	case known:
		f.Next = info.Remedy
	}
	e.add(f)
}
