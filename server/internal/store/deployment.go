package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// EvaluatedRef is the commit at which the deployments of a revision were last evaluated. It is one row for all
// of them, so that a push that affects few of many deployments costs one write.
type EvaluatedRef struct {
	Revision string
	Commit   string
	Except   []fleet.DeploymentID // deployments that were not evaluated at that commit
}

// Repositories stores Git URLs, unique per tenant.
type Repositories interface {
	Create(ctx context.Context, r fleet.Repository) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) (fleet.Repository, error)
	// GetAllTenants finds a repository by id, for webhooks, which have no tenant.
	GetAllTenants(ctx context.Context, id fleet.RepositoryID) (fleet.Repository, error)
	ByURL(ctx context.Context, tenant fleet.TenantID, url string) (fleet.Repository, error)
	// List returns repositories in the order of their URLs.
	List(ctx context.Context, tenant fleet.TenantID, f RepositoryFilter) ([]fleet.Repository, error)
	// Problems returns why those of these repositories that cannot be read cannot.
	Problems(ctx context.Context, tenant fleet.TenantID, ids []fleet.RepositoryID) (map[fleet.RepositoryID]string, error)
	// OfCredential returns the repositories that use a credential.
	OfCredential(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) ([]fleet.Repository, error)
	// ListAllTenants returns every repository that is used by a deployment that is not deleted, by its pending
	// spec, or by the configuration of an agent.
	ListAllTenants(ctx context.Context) ([]fleet.Repository, error)
	// SetCredential sets or, with "", clears the credential and raises Spec.
	SetCredential(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, credential fleet.CredentialID) error
	// SetPolicy sets whether submodules are read and the trusted signers, and raises Spec.
	SetPolicy(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, submodules bool, signers string) error
	// Evaluated returns the commit at which the deployments of a revision were last evaluated; zero if unknown.
	Evaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, revision string) (EvaluatedRef, error)
	// SetEvaluated stores the results for some revisions, records ChangeRepository, and deletes revisions that
	// are not in use.
	SetEvaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, refs []EvaluatedRef, inUse []string) error
	// ExceptEvaluated adds exceptions to a revision.
	ExceptEvaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, revision string, ids []fleet.DeploymentID) error
	// SetChecked records that the remote was read; message is "" when that succeeded, and reason identifies it.
	SetChecked(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, at time.Time, message string, reason fleet.Reason) error
	// Delete fails with ErrExists while deployments, pending specs or configurations of agents refer to it.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) error
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
}

// Credentials stores encrypted secrets for Git. Writes record ChangeCredential.
type Credentials interface {
	Create(ctx context.Context, c fleet.Credential) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) (fleet.Credential, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Credential, error)
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Credential, error)
	// Update writes everything except name and kind, and raises Spec.
	Update(ctx context.Context, c fleet.Credential) error
	// Reseal writes the same secret encrypted with another key. If the secret was edited since it was read, it
	// writes nothing, and sealed is false. It is not an edit and records no change.
	Reseal(ctx context.Context, was fleet.Credential, s fleet.Sealed) (sealed bool, err error)
	// Delete fails with ErrExists while repositories refer to it.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) error
	// NotSealedByAllTenants returns some that are encrypted with another key than this one.
	NotSealedByAllTenants(ctx context.Context, keyID string, limit int) ([]fleet.Credential, error)
}

// Deployments stores deployments. Reads fill Environment and Source.RepoURL.
type Deployments interface {
	Create(ctx context.Context, d fleet.Deployment) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (fleet.Deployment, error)
	// ByName finds the deployment that is not deleted.
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Deployment, error)
	// LeavingByName returns those with a name whose objects are being deleted, the most recently deleted first.
	LeavingByName(ctx context.Context, tenant fleet.TenantID, name string) ([]fleet.Deployment, error)
	// List returns deployments, sorted by name, including those that are being deleted.
	List(ctx context.Context, tenant fleet.TenantID, f DeploymentFilter) ([]fleet.Deployment, error)
	// OfRepository returns those that are not deleted, sorted by name.
	OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.Deployment, error)
	// OfRepositoryByID returns those of OfRepository with one of these IDs.
	OfRepositoryByID(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID, ids []fleet.DeploymentID) ([]fleet.Deployment, error)
	// BriefsOfRepository returns the fields that are needed before Git is read: a repository may have thousands
	// of deployments, and each push reads them.
	BriefsOfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]DeploymentBrief, error)
	// OfEnvironmentAllTenants returns those that are not deleted, by tenant and name: an environment may be
	// granted to other tenants.
	OfEnvironmentAllTenants(ctx context.Context, env fleet.EnvironmentID) ([]fleet.Deployment, error)
	// Update writes the editable fields (labels, repository, source, environment, namespace, policy,
	// suspension, pin) and raises Spec.
	Update(ctx context.Context, d fleet.Deployment) error
	// SetRendered stores the newest complete revision and clears SourceError. Its Digest is that of a bundle of
	// the tenant. Like SetSourceError, it records no change if only the time is new.
	SetRendered(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Rendered) error
	SetSourceError(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, reason fleet.Reason, message string, at time.Time) error
	// SetDetected stores the detected kind, see fleet.Deployment. It writes nothing if it is stored already.
	SetDetected(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, kind fleet.SourceKind) error
	// Variants returns the variants of a deployment by name; PutVariant inserts or replaces one, and
	// KeepVariants removes all others.
	Variants(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Variant, error)
	// VariantsOf returns the variants of many deployments in one query, each by name. Deployments without any are absent.
	VariantsOf(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) (map[fleet.DeploymentID][]fleet.Variant, error)
	PutVariant(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, v fleet.Variant) error
	KeepVariants(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, names []string) error
	// Promote makes d the spec in force and removes the pending one. It writes the fields of Update,
	// SourceRevision, and Detected. It clears SourceError and does not change Spec.
	Promote(ctx context.Context, d fleet.Deployment) error
	// MarkDeleted sets DeletedAt; the name is free immediately.
	MarkDeleted(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, at time.Time) error
	// Remove deletes the row with its revisions and runs; it fails with ErrExists while targets are left.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
}

// DeploymentBrief has the fields of a deployment that refer to its repository, and whether it was rendered
// before.
type DeploymentBrief struct {
	ID       fleet.DeploymentID
	Revision string
	Rendered bool
	Pending  bool // it has a pending spec, of this repository or another
}

// RunFilter narrows a listing; zero fields match everything.
type RunFilter struct {
	Page
	Reason fleet.Reason
}

// RepositoryFilter narrows a listing; zero fields match everything.
type RepositoryFilter struct {
	Page
	Reason     fleet.Reason // Repository.State
	Unreadable bool         // only those that cannot be read
}

// DeploymentFilter narrows a listing of deployments; zero fields match everything. Sync and Health
// match a deployment that has at least one target in that state, in the words that users read: a
// source error counts as Failed, as does the problem of a pending spec, a target whose agent is not connected as Stale and nothing else.
type DeploymentFilter struct {
	Page
	Environment fleet.EnvironmentID
	Repository  fleet.RepositoryID
	Agent       fleet.AgentID // has a target there
	Sync        fleet.SyncState
	Health      fleet.Health
	Reason      fleet.Reason      // its own, or that of a target
	Labels      map[string]string // has all of these
	Selector    fleet.LabelSelector
	Text        string // part of name, repository URL, path, commit or source error; ASCII letters in either case
}

// Revisions stores the revisions for rollbacks.
type Revisions interface {
	// Append stores a revision as the newest of its deployment and returns its number. If the newest has the
	// same bundles, it only replaces its commit and time. It removes all but the newest keep, except the pinned
	// one.
	Append(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Revision, keep int) (int64, error)
	// List returns the kept revisions, newest first: a page starts after the number After.
	List(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, page Page) ([]fleet.Revision, error)
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, seq int64) (fleet.Revision, error)
}

// Bundles stores rendered objects by digest, per tenant.
type Bundles interface {
	// Put stores b unless it exists.
	Put(ctx context.Context, b fleet.Bundle) error
	Get(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error)
	// DeleteUnused removes bundles that are older than before and that no deployment, variant, revision, or
	// target refers to.
	DeleteUnused(ctx context.Context, tenant fleet.TenantID, before time.Time) (int, error)
}

// Runs stores sync runs. Writes record ChangeRun.
type Runs interface {
	// Create adds a run after the others of its deployment, and returns its Seq.
	Create(ctx context.Context, r fleet.SyncRun) (int64, error)
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) (fleet.SyncRun, error)
	// OfDeployment returns runs, newest first, in pages by Seq (Page.After is a decimal number).
	OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, f RunFilter) ([]fleet.SyncRun, error)
	// Open returns the runs of a deployment that are not done, in order.
	Open(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.SyncRun, error)
	// OpenAllTenants returns every run that is not done.
	OpenAllTenants(ctx context.Context) ([]fleet.SyncRun, error)
	// Update writes revision, kept, phase, message, commit, and times.
	Update(ctx context.Context, r fleet.SyncRun) error
	// SetTargets replaces the targets of a run; Targets returns them.
	SetTargets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, targets []fleet.RunTarget) error
	Targets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) ([]fleet.RunTarget, error)
	// WaitingForTarget returns the running run that waits for a target, or ErrNotFound.
	WaitingForTarget(ctx context.Context, tenant fleet.TenantID, target fleet.TargetID) (fleet.SyncRun, error)
	// WaitingForTargets is WaitingForTarget for many; targets without a run are absent.
	WaitingForTargets(ctx context.Context, tenant fleet.TenantID, targets []fleet.TargetID) (map[fleet.TargetID]fleet.SyncRun, error)
	SetTarget(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, t fleet.RunTarget) error
	// CountOpenTargets returns how many targets a run still waits for, and how many have failed.
	CountOpenTargets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) (open, failed int, err error)
	// Trim keeps the newest n done runs of each deployment of the tenant.
	Trim(ctx context.Context, tenant fleet.TenantID, n int) error
}
