package control

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Severity distinguishes problems from intended states.
type Severity string

// The severities of findings.
const (
	SeverityProblem Severity = "problem" // needs attention
	SeverityNotice  Severity = "notice"  // intended, and worth knowing
)

// The parts that are looked at.
const (
	PartFleet        = "fleet"
	PartAgents       = "agents"
	PartEnvironments = "environments"
	PartRepositories = "repositories"
	PartDeployments  = "deployments"
)

// Finding is a problem or a notice.
type Finding struct {
	Part     string
	Severity Severity
	Reason   fleet.Reason
	Subject  string // name of the resource; "" for the part itself
	Message  string
	Next     string // a command that shows details or fixes it
}

// Diagnosis lists the problems of a tenant, and notices.
type Diagnosis struct {
	Agents, Repositories, Deployments int // numbers of resources
	Findings                          []Finding
	// Truncated means that the list is incomplete: only the first findings of each kind are listed.
	Truncated bool
}

const (
	// maxFindings limits the findings of one kind.
	maxFindings = 100
	// maxExamined limits the agents and repositories that are read.
	maxExamined = 2000
)

// examiner collects the findings about one tenant in one transaction.
type examiner struct {
	svc    *Service
	tx     store.Tx
	tenant fleet.Tenant
	out    Diagnosis
}

// Diagnose finds problems and suspensions of a tenant: its cost does not grow with the number of healthy
// deployments.
func (s *Service) Diagnose(ctx context.Context, p auth.Principal, tenant string) (Diagnosis, error) {
	var e examiner
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		e = examiner{svc: s, tx: tx, tenant: t}
		for _, examine := range []func(context.Context) error{e.suspensions, e.agents, e.pushEnvironments, e.repositories, e.deployments} {
			if err := examine(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return e.out, err
}

func (e *examiner) add(f Finding) { e.out.Findings = append(e.out.Findings, f) }

// suspensions adds findings about suspensions.
func (e *examiner) suspensions(ctx context.Context) error {
	settings, err := e.tx.Settings().Get(ctx)
	if err != nil {
		return err
	}
	notice := func(subject string, c fleet.Cause, next string) {
		if !c.IsZero() {
			e.add(Finding{PartFleet, SeverityNotice, c.Reason, subject, c.Message + ": nothing new is sent", next})
		}
	}
	notice("", rollout.SuspensionCause(fleet.ReasonFleetFrozen, "the whole fleet", settings.Suspension), "kedge fleet unfreeze, as a fleet admin")
	tenant := rollout.SuspensionCause(fleet.ReasonTenantSuspended, fmt.Sprintf("tenant %q", e.tenant.Name), e.tenant.Suspension)
	notice(e.tenant.Name, tenant, "kedge tenant resume "+e.tenant.Name)
	environments, err := e.tx.Environments().List(ctx, e.tenant.ID, store.Page{Limit: maxExamined})
	for _, env := range environments {
		suspended := rollout.SuspensionCause(fleet.ReasonEnvironmentSuspended, fmt.Sprintf("environment %q", env.Name), env.Suspension)
		notice(env.Name, suspended, "kedge env resume "+env.Name)
	}
	return err
}

func (e *examiner) agents(ctx context.Context) error {
	list, err := e.tx.Agents().List(ctx, e.tenant.ID, store.AgentFilter{Page: store.Page{Limit: maxExamined}})
	if err != nil {
		return err
	}
	if e.out.Agents, err = e.tx.Agents().Count(ctx, e.tenant.ID); err != nil {
		return err
	}
	e.out.Truncated = e.out.Truncated || e.out.Agents > len(list)
	if len(list) == 0 {
		e.add(Finding{PartAgents, SeverityProblem, fleet.ReasonNoAgents, "", "there is none", "kedge agent enroll NAME --image IMAGE | kubectl apply -f -"})
		return nil
	}
	views, err := e.svc.viewAgents(ctx, e.tx, list)
	if err != nil {
		return err
	}
	for _, v := range views {
		e.agent(v)
	}
	return nil
}

func (e *examiner) agent(v AgentView) {
	problem := func(reason fleet.Reason, message, next string) {
		e.add(Finding{PartAgents, SeverityProblem, reason, v.Name, message, next})
	}
	logs := fmt.Sprintf("kubectl -n kedge-agent-%s logs deployment/kedge-agent, in its cluster", v.Name)
	switch {
	case v.Connected:
	case v.LastSeenAt.IsZero():
		problem(fleet.ReasonAgentNeverConnected, "never connected", "apply its manifest if that was not done: kedge agent manifest "+v.Name+"; or "+logs)
	default:
		problem(fleet.ReasonAgentDisconnected, "not connected since "+v.LastSeenAt.UTC().Format(time.RFC3339), logs)
	}
	for _, w := range v.Warnings {
		problem(w.Reason, w.Message, agentAdvice(v, w))
	}
}

// agentAdvice returns the remedy for a warning about an agent.
func agentAdvice(v AgentView, w fleet.Cause) string {
	switch {
	case w == v.ConfigWarning:
		return "kedge agent config get " + v.Name + " lists every error; fix the file and push"
	case w.Reason == fleet.ReasonVersionSkew:
		return "kedge agent manifest " + v.Name + " | kubectl apply -f -, with an image of the server's version"
	case w.Reason == fleet.ReasonEngineMismatch:
		return "kedge agent manifest " + v.Name + " | kubectl apply -f -"
	case w.Reason == fleet.ReasonTokenRotationFailed:
		return "fix the cause, then kedge agent token rotate " + v.Name
	default:
		return "kedge get agents " + v.Name
	}
}

func (e *examiner) repositories(ctx context.Context) error {
	var err error
	if e.out.Repositories, err = e.tx.Repositories().Count(ctx, e.tenant.ID); err != nil {
		return err
	}
	list, err := e.tx.Repositories().List(ctx, e.tenant.ID, store.RepositoryFilter{Page: store.Page{Limit: maxFindings + 1}, Unreadable: true})
	e.out.Truncated = e.out.Truncated || len(list) > maxFindings
	if err != nil {
		return err
	}
	for _, r := range list[:min(len(list), maxFindings)] {
		used, err := e.used(ctx, r)
		if err != nil {
			return err
		}
		f := Finding{PartRepositories, SeverityProblem, fleet.ReasonRepositoryUnreadable, r.URL, r.Error, repositoryAdvice(r)}
		if !used {
			f.Severity, f.Reason, f.Next = SeverityNotice, fleet.ReasonRepositoryUnused, "nothing is deployed from it: kedge repo delete "+r.URL
		}
		e.add(f)
	}
	return nil
}

// used reports whether a deployment or a configuration uses a repository.
func (e *examiner) used(ctx context.Context, r fleet.Repository) (bool, error) {
	deployments, err := e.tx.Deployments().BriefsOfRepository(ctx, e.tenant.ID, r.ID)
	if err != nil || len(deployments) > 0 {
		return true, err
	}
	configs, err := e.tx.AgentConfigs().OfRepository(ctx, e.tenant.ID, r.ID)
	return len(configs) > 0, err
}

// repositoryAdvice returns the remedy for a repository that cannot be read, by reason.
func repositoryAdvice(r fleet.Repository) string {
	switch r.ErrorReason {
	case fleet.ReasonRepositoryNotReadable:
		return "kedge repo set " + r.URL + " --credential NAME, if it needs another one"
	case fleet.ReasonHostUnknown:
		return "check the host in the URL, and that the server's DNS knows it"
	case fleet.ReasonHostDenied:
		return "ask the operator of the server to allow the host with --git-allow-cidr or --git-allow-private"
	case fleet.ReasonHostKeyUnknown:
		return "kedge credential set NAME --known-hosts-file FILE"
	case fleet.ReasonRedirected, fleet.ReasonNotGit:
		return "kedge deploy set NAME --repo URL, with the URL for git clone"
	default:
		return "the server retries; check that it can reach the host. kedge get events shows the history"
	}
}
