package fleet

import (
	"fmt"
	"time"
)

// PendingSpec is a spec that a user requested and that is not in force because its source is not rendered yet.
// A deployment has at most one. Agents do not get it.
type PendingSpec struct {
	TenantID     TenantID
	DeploymentID DeploymentID
	SpecRevision int64 // Deployment.SpecRevision after the edit

	Labels            map[string]string
	RepositoryID      RepositoryID
	Source            Source
	EnvironmentTenant TenantID
	EnvironmentID     EnvironmentID
	Environment       string
	Namespace         string
	Policy            Policy

	By string // who asked for it
	// EditedAt is when source or namespace was edited, until the newest commit at that time is evaluated: the
	// result of that evaluation is what a user requested, see Desired.Consent. Zero if there is nothing to
	// evaluate.
	EditedAt time.Time
	Reason   Reason
	Problem  string // message for Reason; "" before the first evaluation
}

// String is what users read.
func (p PendingSpec) String() string {
	what := "source"
	if p.Reason == ReasonSpecRefused {
		what = "turn"
	}
	text := fmt.Sprintf("spec revision %d waits for its %s", p.SpecRevision, what)
	if p.Problem == "" {
		return text + ": it has not been read yet"
	}
	return text + ": " + p.Problem
}

// Pending returns the spec of d as a pending spec.
func (d Deployment) Pending(by string) PendingSpec {
	return PendingSpec{
		TenantID: d.TenantID, DeploymentID: d.ID, Labels: d.Labels, RepositoryID: d.RepositoryID, Source: d.Source,
		EnvironmentTenant: d.EnvironmentTenant, EnvironmentID: d.EnvironmentID, Environment: d.Environment,
		Namespace: d.Namespace, Policy: d.Policy, By: by, Reason: ReasonSourceNotRead,
	}
}

// With returns d with another spec. State that is not part of a spec, such as a suspension or a pin, does not
// change.
func (d Deployment) With(p PendingSpec) Deployment {
	d.Labels, d.RepositoryID, d.Source = p.Labels, p.RepositoryID, p.Source
	d.EnvironmentTenant, d.EnvironmentID, d.Environment = p.EnvironmentTenant, p.EnvironmentID, p.Environment
	d.Namespace, d.Policy = p.Namespace, p.Policy
	return d
}
