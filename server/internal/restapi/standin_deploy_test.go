package restapi_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// staleState is stale of a state that control has numbered.
func staleState(match, now control.Match) error { return stale(match, now.ID, now.Spec) }

// stale is ErrStale for any other state than the one that is there.
func stale[ID ~string](match control.Match, id ID, spec int64) error {
	if match != (control.Match{}) && match != (control.Match{ID: string(id), Spec: spec}) {
		return control.ErrStale
	}
	return nil
}

func (s *standin) EnrollAgent(_ context.Context, _ auth.Principal, _ string, req control.EnrollAgent) (control.Enrollment, error) {
	s.called("EnrollAgent")
	a := agentView().Agent
	a.Name = req.Name
	return control.Enrollment{Agent: a, Token: "kedge-agent-fresh"}, nil
}

func (s *standin) Agents(context.Context, auth.Principal, string, store.AgentFilter) ([]control.AgentView, error) {
	s.called("Agents")
	return []control.AgentView{agentView()}, nil
}

func (s *standin) Agent(context.Context, auth.Principal, string, string) (control.AgentView, error) {
	s.called("Agent")
	return agentView(), nil
}

func (s *standin) UpdateAgent(_ context.Context, _ auth.Principal, _, _ string, _ control.UpdateAgent, match control.Match) (control.AgentView, error) {
	s.called("UpdateAgent")
	return agentView(), stale(match, agentView().ID, agentView().Spec)
}

func (s *standin) DeleteAgent(_ context.Context, _ auth.Principal, _, _ string, match control.Match) error {
	s.called("DeleteAgent")
	return stale(match, agentView().ID, agentView().Spec)
}

func (s *standin) CreateEnvironment(context.Context, auth.Principal, string, control.CreateEnvironment) (control.EnvironmentView, error) {
	s.called("CreateEnvironment")
	return anEnvironment(), nil
}

func (s *standin) Environments(context.Context, auth.Principal, string, store.Page) ([]control.EnvironmentView, error) {
	s.called("Environments")
	return []control.EnvironmentView{anEnvironment()}, nil
}

func (s *standin) Environment(context.Context, auth.Principal, string, string) (control.EnvironmentView, error) {
	s.called("Environment")
	return anEnvironment(), nil
}

func (s *standin) UpdateEnvironment(_ context.Context, _ auth.Principal, _, _ string, _ control.UpdateEnvironment, match control.Match) (control.EnvironmentView, error) {
	s.called("UpdateEnvironment")
	return anEnvironment(), stale(match, anEnvironment().ID, 4)
}

func (s *standin) SuspendEnvironment(context.Context, auth.Principal, string, string, string) (control.EnvironmentView, error) {
	s.called("SuspendEnvironment")
	return anEnvironment(), nil
}

func (s *standin) ResumeEnvironment(context.Context, auth.Principal, string, string) (control.EnvironmentView, error) {
	s.called("ResumeEnvironment")
	return anEnvironment(), nil
}

func (s *standin) DeleteEnvironment(_ context.Context, _ auth.Principal, _, _ string, match control.Match) error {
	s.called("DeleteEnvironment")
	return stale(match, anEnvironment().ID, 4)
}

func (s *standin) Repositories(context.Context, auth.Principal, string, store.Page) ([]control.RepositoryView, error) {
	s.called("Repositories")
	return []control.RepositoryView{aRepository()}, nil
}

func (s *standin) Repository(context.Context, auth.Principal, string, fleet.RepositoryID) (control.RepositoryView, error) {
	s.called("Repository")
	return aRepository(), nil
}

func (s *standin) CreateRepository(context.Context, auth.Principal, string, control.CreateRepository) (control.RepositoryView, error) {
	s.called("CreateRepository")
	return aRepository(), nil
}

func (s *standin) UpdateRepository(_ context.Context, _ auth.Principal, _ string, _ fleet.RepositoryID, _ control.UpdateRepository, match control.Match) (control.RepositoryView, error) {
	s.called("UpdateRepository")
	return aRepository(), stale(match, aRepository().ID, 2)
}

func (s *standin) DeleteRepository(_ context.Context, _ auth.Principal, _ string, _ fleet.RepositoryID, match control.Match) error {
	s.called("DeleteRepository")
	return stale(match, aRepository().ID, 2)
}

func (s *standin) RefreshRepository(context.Context, auth.Principal, string, fleet.RepositoryID) error {
	s.called("RefreshRepository")
	return nil
}

func (s *standin) Webhook(_ context.Context, _ auth.Principal, _ string, id fleet.RepositoryID) (control.Webhook, error) {
	s.called("Webhook")
	return control.Webhook{Repository: id, Secret: "s3cret"}, nil
}

func (s *standin) WebhookSecret(context.Context, fleet.RepositoryID) (string, error) {
	s.called("WebhookSecret")
	return "s3cret", nil
}

func (s *standin) Push(context.Context, fleet.RepositoryID, ...string) error {
	s.called("Push")
	return nil
}

func (s *standin) Credentials(context.Context, auth.Principal, string, store.Page) ([]fleet.Credential, error) {
	s.called("Credentials")
	return []fleet.Credential{aCredential()}, nil
}

func (s *standin) Credential(context.Context, auth.Principal, string, string) (fleet.Credential, error) {
	s.called("Credential")
	return aCredential(), nil
}

func (s *standin) CreateCredential(context.Context, auth.Principal, string, control.CreateCredential) (fleet.Credential, error) {
	s.called("CreateCredential")
	return aCredential(), nil
}

func (s *standin) UpdateCredential(_ context.Context, _ auth.Principal, _, _ string, _ control.UpdateCredential, match control.Match) (fleet.Credential, error) {
	s.called("UpdateCredential")
	return aCredential(), stale(match, aCredential().ID, 7)
}

func (s *standin) DeleteCredential(_ context.Context, _ auth.Principal, _, _ string, match control.Match) error {
	s.called("DeleteCredential")
	return stale(match, aCredential().ID, 7)
}

func (s *standin) CreateDeployment(context.Context, auth.Principal, string, control.CreateDeployment) (control.DeploymentView, error) {
	s.called("CreateDeployment")
	return deploymentView(), nil
}

func (s *standin) Deployments(context.Context, auth.Principal, string, control.ListDeployments) ([]control.DeploymentView, error) {
	s.called("Deployments")
	v := deploymentView()
	v.Targets, v.Operations = nil, nil
	return []control.DeploymentView{v}, nil
}

func (s *standin) Deployment(context.Context, auth.Principal, string, string) (control.DeploymentView, error) {
	s.called("Deployment")
	return deploymentView(), nil
}

func (s *standin) UpdateDeployment(_ context.Context, _ auth.Principal, _, _ string, _ control.UpdateDeployment, match control.Match) (control.DeploymentView, error) {
	s.called("UpdateDeployment")
	return deploymentView(), stale(match, deploymentView().ID, deploymentView().Spec)
}

func (s *standin) DeleteDeployment(_ context.Context, _ auth.Principal, _, _ string, match control.Match) (fleet.Operation, error) {
	s.called("DeleteDeployment")
	return anOperation(), stale(match, deploymentView().ID, deploymentView().Spec)
}

func (s *standin) DeleteDeploymentKeepObjects(_ context.Context, _ auth.Principal, _, _ string, match control.Match) (fleet.Operation, error) {
	s.called("DeleteDeploymentKeepObjects")
	return anOperation(), stale(match, deploymentView().ID, deploymentView().Spec)
}

func (s *standin) DeploymentDeletion(context.Context, auth.Principal, string, string) (control.Deletion, error) {
	s.called("DeploymentDeletion")
	return control.Deletion{Clusters: 2, Away: 1, Objects: 12, Kept: 1}, nil
}

func (s *standin) Diagnose(context.Context, auth.Principal, string) (control.Diagnosis, error) {
	s.called("Diagnose")
	return control.Diagnosis{Agents: 2, Repositories: 3, Deployments: 4, Truncated: true, Findings: []control.Finding{{
		Part: control.PartFleet, Severity: control.SeverityNotice, Reason: control.ReasonEnvironmentSuspended, Subject: "eu",
		Message: `environment "eu" is suspended by anna`, Next: "kedge env resume eu",
	}}}, nil
}

func (s *standin) SuspendDeployment(context.Context, auth.Principal, string, string, string) (control.DeploymentView, error) {
	s.called("SuspendDeployment")
	return deploymentView(), nil
}

func (s *standin) ResumeDeployment(context.Context, auth.Principal, string, string) (control.DeploymentView, error) {
	s.called("ResumeDeployment")
	return deploymentView(), nil
}

func (s *standin) ReleaseDeployment(context.Context, auth.Principal, string, string) (control.DeploymentView, error) {
	s.called("ReleaseDeployment")
	return deploymentView(), nil
}

func (s *standin) Revisions(_ context.Context, _ auth.Principal, _, _ string, page store.Page) ([]fleet.Revision, error) {
	s.called("Revisions")
	return pageOf([]fleet.Revision{
		{Seq: 10, Commit: "beef", RenderedAt: later, Bundles: map[string]string{"x": "sha256:b", "y": "sha256:a", "z": "sha256:a"}},
		{Seq: 9, Commit: "c0ffee", RenderedAt: later, Bundles: map[string]string{"": "sha256:abc"}},
	}, page, func(r fleet.Revision) string { return fmt.Sprint(r.Seq) }), nil
}

func (s *standin) Targets(_ context.Context, _ auth.Principal, _, _ string, f store.TargetFilter) ([]control.TargetView, error) {
	s.called(fmt.Sprintf("Targets %s %s %s %t", f.Sync, f.Health, f.Agent, f.Stale != nil && *f.Stale))
	all := deploymentView().Targets
	for i := range all {
		all[i].Objects = nil
	}
	return pageOf(all, f.Page, func(t control.TargetView) string { return t.AgentName + "/" + string(t.ID) }), nil
}

func (s *standin) TargetObjects(context.Context, auth.Principal, string, string, string) (control.TargetView, error) {
	s.called("TargetObjects")
	return deploymentView().Targets[0], nil
}

func (s *standin) DismissTarget(context.Context, auth.Principal, string, string, fleet.TargetID) error {
	s.called("DismissTarget")
	return nil
}

func (s *standin) DetachedTargets(context.Context, auth.Principal, string, store.DetachedFilter) ([]fleet.Target, error) {
	s.called("DetachedTargets")
	return []fleet.Target{{ID: "tgt-1", DeploymentName: "web", AgentName: "prod-1", DetachedAt: born, DetachedWhy: "agent \"prod-1\" was deleted"}}, nil
}

func (s *standin) DismissTargets(context.Context, auth.Principal, string, string, string) (control.Dismissed, error) {
	s.called("DismissTargets")
	return control.Dismissed{Targets: make([]fleet.Target, 2), Kept: 1}, nil
}

func (s *standin) AgentObjects(context.Context, auth.Principal, string, string) (control.AgentObjects, error) {
	s.called("AgentObjects")
	return control.AgentObjects{Deployments: []string{"web"}, Objects: 3, Connected: true}, nil
}

func (s *standin) DeleteAgentObjects(context.Context, auth.Principal, string, string, int) (control.AgentObjects, error) {
	s.called("DeleteAgentObjects")
	return control.AgentObjects{Deployments: []string{"web"}, Objects: 3, Connected: true, Uninstalling: true}, nil
}

func (s *standin) HeldPrunes(context.Context, auth.Principal, string, string, string, store.HeldObject, int) ([]control.HeldPrune, error) {
	s.called("HeldPrunes")
	held := fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Kind: "ConfigMap", Namespace: "shop", Name: "old"}, Sync: fleet.SyncHeld, Message: "too many"}
	return []control.HeldPrune{{HeldObject: store.HeldObject{Target: "tgt-1", Agent: "prod", ObjectStatus: held}, Commit: "c0ffee", Current: true}}, nil
}

func (s *standin) ConfirmPrune(_ context.Context, _ auth.Principal, _, _ string, req control.ConfirmPrune) (control.ConfirmedPrune, error) {
	s.called("ConfirmPrune")
	return control.ConfirmedPrune{Objects: req.Objects, Deletions: len(req.Objects), Targets: 1}, nil
}

func (s *standin) CreateRun(context.Context, auth.Principal, string, string, control.CreateRun) (fleet.SyncRun, error) {
	s.called("CreateRun")
	return aRun(), nil
}

func (s *standin) Rollback(context.Context, auth.Principal, string, string, control.Rollback) (fleet.SyncRun, error) {
	s.called("Rollback")
	r := aRun()
	r.Kind, r.Kept = fleet.RunRollback, 9
	return r, nil
}

func (s *standin) Runs(context.Context, auth.Principal, string, string, store.Page) ([]fleet.SyncRun, error) {
	s.called("Runs")
	return []fleet.SyncRun{aRun()}, nil
}

func (s *standin) Run(context.Context, auth.Principal, string, fleet.RunID) (fleet.SyncRun, error) {
	s.called("Run")
	return aRun(), nil
}

func (s *standin) RunWaiting(context.Context, auth.Principal, string, fleet.RunID) ([]control.RunWait, int, error) {
	s.called("RunWaiting")
	return []control.RunWait{{Reason: control.ReasonDisconnected, Agent: "lost", Message: "it is not connected"}}, 3, nil
}

func (s *standin) UpdateRun(_ context.Context, _ auth.Principal, _ string, _ fleet.RunID, _ control.UpdateRun, match control.Match) (fleet.SyncRun, error) {
	s.called("UpdateRun")
	return aRun(), staleState(match, control.RunState(aRun()))
}

func (s *standin) TerminateRun(_ context.Context, _ auth.Principal, _ string, _ fleet.RunID, match control.Match) (fleet.SyncRun, error) {
	s.called("TerminateRun")
	return aRun(), staleState(match, control.RunState(aRun()))
}

func (s *standin) Operations(context.Context, auth.Principal, string, store.OperationFilter) ([]fleet.Operation, error) {
	s.called("Operations")
	return []fleet.Operation{anOperation()}, nil
}

func (s *standin) Operation(context.Context, auth.Principal, string, fleet.OperationID) (fleet.Operation, error) {
	s.called("Operation")
	return anOperation(), nil
}

func (s *standin) Audit(context.Context, auth.Principal, string, store.AuditFilter) ([]fleet.AuditEvent, error) {
	s.called("Audit")
	return []fleet.AuditEvent{{
		Seq: 12, At: later, Actor: "anna", Door: "rest", Action: "deployment.create", Kind: "deployment", Name: "web", ID: "dep-1",
		Request: "abc", Address: "10.0.0.1:1", Detail: "from https://git.example.com/web",
	}}, nil
}

func (s *standin) Events(context.Context, auth.Principal, string, store.EventFilter) ([]fleet.Event, error) {
	s.called("Events")
	return []fleet.Event{{
		Seq: 7, At: later, Type: fleet.EventWarning, Reason: "ApplyFailed", Agent: "prod", Deployment: "web",
		Object: "Deployment.apps naww/nginx", Message: "forbidden",
	}}, nil
}

func (s *standin) Follow(_ context.Context, _ auth.Principal, _ string, _ int64, fn func([]store.Change) error) error {
	s.called("Follow")
	return fn([]store.Change{{Seq: 44, Kind: store.ChangeStatus, ID: "tgt-1", AgentID: "agt-1", DeploymentID: "dep-1", At: born}})
}

func (s *standin) Applications(context.Context, fleet.Agent) ([]control.Application, string, error) {
	s.called("Applications")
	return []control.Application{anApplication()}, "tag-1", nil
}

func (s *standin) WaitApplications(context.Context, fleet.Agent, string, time.Duration) ([]control.Application, string, bool, error) {
	s.called("WaitApplications")
	return []control.Application{anApplication()}, "tag-2", true, nil
}

func (s *standin) Report(context.Context, []control.AgentReports) error {
	s.called("Report")
	return nil
}
