package fleet

import (
	"fmt"
	"time"
)

// PendingSpec is a spec that was asked for and that is not in force: its source is not rendered yet. A deployment
// has at most one. Agents get nothing of it.
type PendingSpec struct {
	TenantID     TenantID
	DeploymentID DeploymentID
	Spec         int64 // Deployment.Spec as the edit left it

	Labels            map[string]string
	RepositoryID      RepositoryID
	Source            Source
	EnvironmentTenant TenantID
	EnvironmentID     EnvironmentID
	Environment       string
	Namespace         string
	Policy            Policy

	By string // who asked for it
	// EditedAt is when source or namespace was edited, until the commit that is then newest was looked at: what
	// comes of that is what a user has asked for, see Desired.Consent. Zero when there is nothing to look at.
	EditedAt time.Time
	Reason   PendingReason
	Problem  string // what is in the way, for Reason; "" before the first look
}

// PendingReason says why a spec is not in force.
type PendingReason string

// The reasons why a spec is not in force.
const (
	PendingNotRead    PendingReason = "SourceNotRead"     // nobody has looked at its source yet
	PendingUnreadable PendingReason = "SourceUnreadable"  // its repository cannot be read now
	PendingUnrendered PendingReason = "SourceNotRendered" // its source cannot be used as it is
	PendingRefused    PendingReason = "SpecRefused"       // a quota, a grant, a suspension or its environment forbids it
)

// String is what users read.
func (p PendingSpec) String() string {
	what := "source"
	if p.Reason == PendingRefused {
		what = "turn"
	}
	text := fmt.Sprintf("spec revision %d waits for its %s", p.Spec, what)
	if p.Problem == "" {
		return text + ": it has not been read yet"
	}
	return text + ": " + p.Problem
}

// Pending is the spec of d, as it is to wait for its source.
func (d Deployment) Pending(by string) PendingSpec {
	return PendingSpec{
		TenantID: d.TenantID, DeploymentID: d.ID, Labels: d.Labels, RepositoryID: d.RepositoryID, Source: d.Source,
		EnvironmentTenant: d.EnvironmentTenant, EnvironmentID: d.EnvironmentID, Environment: d.Environment,
		Namespace: d.Namespace, Policy: d.Policy, By: by, Reason: PendingNotRead,
	}
}

// With is d with another spec. What is no part of a spec, such as a suspension or a pin, stays.
func (d Deployment) With(p PendingSpec) Deployment {
	d.Labels, d.RepositoryID, d.Source = p.Labels, p.RepositoryID, p.Source
	d.EnvironmentTenant, d.EnvironmentID, d.Environment = p.EnvironmentTenant, p.EnvironmentID, p.Environment
	d.Namespace, d.Policy = p.Namespace, p.Policy
	return d
}
