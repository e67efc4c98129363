package control

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Severity tells what somebody has to do something about from what somebody has decided.
type Severity string

// The severities of findings.
const (
	SeverityProblem Severity = "problem" // not as it should be
	SeverityNotice  Severity = "notice"  // as somebody wants it, and worth knowing
)

// Reason identifies a finding. The sentence beside it may change, the reason does not.
type Reason string

// The reasons of findings.
const (
	ReasonFleetFrozen          Reason = "FleetFrozen"
	ReasonTenantSuspended      Reason = "TenantSuspended"
	ReasonEnvironmentSuspended Reason = "EnvironmentSuspended"
	ReasonNoAgent              Reason = "NoAgent"
	ReasonNeverConnected       Reason = "NeverConnected"
	ReasonDisconnected         Reason = "Disconnected"
	ReasonAgentWarning         Reason = "AgentWarning" // another version, several clusters, an operation that failed
	ReasonConfigNotLive        Reason = "ConfigNotLive"
	ReasonRepositoryUnreadable Reason = "RepositoryUnreadable"
	ReasonRepositoryUnused     Reason = "RepositoryUnused" // it cannot be read, and nothing needs it
	ReasonSourceInvalid        Reason = "SourceInvalid"
	ReasonSyncFailed           Reason = "SyncFailed"
	ReasonRewound              Reason = "Rewound"
	ReasonUnhealthy            Reason = "Unhealthy"
	ReasonStale                Reason = "Stale"
	ReasonDrifted              Reason = "Drifted"
	ReasonHeldBack             Reason = "HeldBack" // a newer revision waits: suspended, pinned, manual
	ReasonPrunesHeld           Reason = "PrunesHeld"
)

// The parts that are looked at.
const (
	PartFleet        = "fleet"
	PartAgents       = "agents"
	PartRepositories = "repositories"
	PartDeployments  = "deployments"
)

// Finding is something that is not as a user might expect.
type Finding struct {
	Part     string
	Severity Severity
	Reason   Reason
	Subject  string // name of what it is about; "" when it is the part itself
	Message  string
	Next     string // a command that tells more or mends it
}

// Diagnosis is what is wrong in a tenant, or worth knowing.
type Diagnosis struct {
	Agents, Repositories, Deployments int // how many there are
	Findings                          []Finding
	// Truncated says that there is more: of each kind of finding only the first are listed.
	Truncated bool
}

const (
	// maxFindings bounds how many things of one kind are listed.
	maxFindings = 100
	// maxExamined bounds how many agents and repositories are read.
	maxExamined = 2000
)

// examiner collects the findings about one tenant in one transaction.
type examiner struct {
	svc    *Service
	tx     store.Tx
	tenant fleet.Tenant
	out    Diagnosis
}

// Diagnose looks for what is wrong in a tenant, and for what holds it: what it costs does not grow with the
// number of deployments that are well.
func (s *Service) Diagnose(ctx context.Context, p auth.Principal, tenant string) (Diagnosis, error) {
	var e examiner
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		e = examiner{svc: s, tx: tx, tenant: t}
		for _, examine := range []func(context.Context) error{e.suspensions, e.agents, e.repositories, e.deployments} {
			if err := examine(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return e.out, err
}

func (e *examiner) add(f Finding) { e.out.Findings = append(e.out.Findings, f) }

// suspensions are what keeps anything new from being sent at all.
func (e *examiner) suspensions(ctx context.Context) error {
	settings, err := e.tx.Settings().Get(ctx)
	if err != nil {
		return err
	}
	notice := func(reason Reason, subject, what string, s fleet.Suspension, next string) {
		if s.Active() {
			e.add(Finding{PartFleet, SeverityNotice, reason, subject, rollout.DescribeSuspension(what, s) + ": nothing new is sent", next})
		}
	}
	notice(ReasonFleetFrozen, "", "the whole fleet", settings.Suspension, "kedge fleet unfreeze, as a fleet admin")
	notice(ReasonTenantSuspended, e.tenant.Name, fmt.Sprintf("tenant %q", e.tenant.Name), e.tenant.Suspension, "kedge tenant resume "+e.tenant.Name)
	environments, err := e.tx.Environments().List(ctx, e.tenant.ID, store.Page{Limit: maxExamined})
	for _, env := range environments {
		notice(ReasonEnvironmentSuspended, env.Name, fmt.Sprintf("environment %q", env.Name), env.Suspension, "kedge env resume "+env.Name)
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
		e.add(Finding{PartAgents, SeverityProblem, ReasonNoAgent, "", "there is none", "kedge agent enroll NAME --image IMAGE | kubectl apply -f -"})
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
	problem := func(reason Reason, message, next string) {
		e.add(Finding{PartAgents, SeverityProblem, reason, v.Name, message, next})
	}
	logs := fmt.Sprintf("kubectl -n kedge-agent-%s logs deployment/kedge-agent, in its cluster", v.Name)
	switch {
	case v.Connected:
	case v.LastSeenAt.IsZero():
		problem(ReasonNeverConnected, "it has never connected", "apply its manifest if that was not done: kedge agent manifest "+v.Name+"; or "+logs)
	default:
		problem(ReasonDisconnected, "it is not connected since "+v.LastSeenAt.UTC().Format(time.RFC3339), logs)
	}
	warnings := v.Warnings
	if v.ConfigWarning != "" {
		warnings = warnings[:len(warnings)-1] // it is the last one
		problem(ReasonConfigNotLive, v.ConfigWarning, "kedge agent config get "+v.Name+" lists every mistake; mend the file and push")
	}
	for _, w := range warnings {
		problem(ReasonAgentWarning, w, "kedge get agents "+v.Name+"; for another version: kedge agent manifest "+v.Name+" | kubectl apply -f -")
	}
}

func (e *examiner) repositories(ctx context.Context) error {
	list, err := e.tx.Repositories().List(ctx, e.tenant.ID, store.Page{Limit: maxExamined})
	e.out.Repositories = len(list)
	e.out.Truncated = e.out.Truncated || len(list) == maxExamined
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.Error == "" {
			continue
		}
		used, err := e.used(ctx, r)
		if err != nil {
			return err
		}
		f := Finding{PartRepositories, SeverityProblem, ReasonRepositoryUnreadable, r.URL, r.Error, repositoryAdvice(r)}
		if !used {
			f.Severity, f.Reason, f.Next = SeverityNotice, ReasonRepositoryUnused, "nothing is deployed from it: kedge repo delete "+r.URL
		}
		e.add(f)
	}
	return nil
}

// used reports whether anything is deployed from a repository, or would be by its configuration files.
func (e *examiner) used(ctx context.Context, r fleet.Repository) (bool, error) {
	deployments, err := e.tx.Deployments().BriefsOfRepository(ctx, e.tenant.ID, r.ID)
	if err != nil || len(deployments) > 0 {
		return true, err
	}
	configs, err := e.tx.AgentConfigs().OfRepository(ctx, e.tenant.ID, r.ID)
	return len(configs) > 0, err
}

// repositoryAdvice is what to do about a repository that cannot be read, by the reason.
func repositoryAdvice(r fleet.Repository) string {
	switch gitsource.Reason(r.ErrorReason) {
	case gitsource.ReasonNotReadable:
		return "kedge repo set " + r.URL + " --credential NAME, if it needs another one"
	case gitsource.ReasonHostUnknown:
		return "check the host in the URL, and that the server's DNS knows it"
	case gitsource.ReasonHostDenied:
		return "the operator of the server allows the host with --git-allow-cidr or --git-allow-private"
	case gitsource.ReasonHostKeyUnknown:
		return "kedge credential set NAME --known-hosts-file FILE"
	case gitsource.ReasonRedirected, gitsource.ReasonNotGit:
		return "kedge deploy set NAME --repo URL, with the URL that git clone takes"
	default:
		return "the server tries again by itself; check that it can reach the host. kedge get events shows since when"
	}
}
