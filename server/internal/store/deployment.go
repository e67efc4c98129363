package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// EvaluatedRef is up to which commit the deployments of a revision were evaluated. It is one row for all of them,
// so that a push that concerns few of many costs one write.
type EvaluatedRef struct {
	Revision string
	Commit   string
	Except   []fleet.DeploymentID // those that were not evaluated at that commit
}

// Repositories is the aggregate of Git URLs, unique per tenant.
type Repositories interface {
	Create(ctx context.Context, r fleet.Repository) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) (fleet.Repository, error)
	// GetAllTenants finds a repository by its id alone, for webhooks, which carry no tenant.
	GetAllTenants(ctx context.Context, id fleet.RepositoryID) (fleet.Repository, error)
	ByURL(ctx context.Context, tenant fleet.TenantID, url string) (fleet.Repository, error)
	// List returns repositories in the order of their URLs.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Repository, error)
	// Problems returns why those of these repositories that cannot be read cannot.
	Problems(ctx context.Context, tenant fleet.TenantID, ids []fleet.RepositoryID) (map[fleet.RepositoryID]string, error)
	// OfCredential returns those that are read with a credential.
	OfCredential(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) ([]fleet.Repository, error)
	// ListAllTenants returns every repository that a deployment which is not deleted uses, or its pending spec, or
	// the configuration of an agent.
	ListAllTenants(ctx context.Context) ([]fleet.Repository, error)
	// SetCredential sets or, with "", clears the credential and raises Spec.
	SetCredential(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, credential fleet.CredentialID) error
	// SetPolicy sets whether submodules are read and who must have signed, and raises Spec.
	SetPolicy(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, submodules bool, signers string) error
	// Evaluated is up to which commit the deployments of a revision were evaluated; its zero value when that is
	// not known.
	Evaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, revision string) (EvaluatedRef, error)
	// SetEvaluated writes what is known of some revisions, records ChangeRepository, and forgets the revisions
	// that are not in use.
	SetEvaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, refs []EvaluatedRef, inUse []string) error
	// ExceptEvaluated adds to the exceptions of a revision.
	ExceptEvaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, revision string, ids []fleet.DeploymentID) error
	// SetChecked records a look at the remote; message is "" when it could be read, and reason identifies it.
	SetChecked(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, at time.Time, message, reason string) error
	// Delete fails with ErrExists while deployments, pending specs or configurations of agents refer to it.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) error
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
}

// Credentials is the aggregate of sealed secrets for Git. Writes record ChangeCredential.
type Credentials interface {
	Create(ctx context.Context, c fleet.Credential) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) (fleet.Credential, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Credential, error)
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Credential, error)
	// Update writes everything but name and kind and raises Spec.
	Update(ctx context.Context, c fleet.Credential) error
	// Reseal writes the same secret under another key, unless it is no longer the one that was read: an
	// edit meanwhile wins, and sealed is false. It is no edit and records no change.
	Reseal(ctx context.Context, was fleet.Credential, s fleet.Sealed) (sealed bool, err error)
	// Delete fails with ErrExists while repositories refer to it.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) error
	// NotSealedByAllTenants returns some that are sealed under another key than this one.
	NotSealedByAllTenants(ctx context.Context, keyID string, limit int) ([]fleet.Credential, error)
}

// Deployments is the aggregate of deployments. Reads fill Environment and Source.RepoURL.
type Deployments interface {
	Create(ctx context.Context, d fleet.Deployment) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (fleet.Deployment, error)
	// ByName finds the deployment that is not deleted.
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Deployment, error)
	// LeavingByName returns those of a name whose objects are being deleted, the one that was deleted last first.
	LeavingByName(ctx context.Context, tenant fleet.TenantID, name string) ([]fleet.Deployment, error)
	// List returns deployments in the order of their names, those on their way out included.
	List(ctx context.Context, tenant fleet.TenantID, f DeploymentFilter) ([]fleet.Deployment, error)
	// OfRepository returns those that are not deleted, by name.
	OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.Deployment, error)
	// OfRepositoryByID returns those of the same that have one of these IDs.
	OfRepositoryByID(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID, ids []fleet.DeploymentID) ([]fleet.Deployment, error)
	// BriefsOfRepository returns of the same what has to be known before Git is asked: a repository may have
	// thousands, and each push reads them.
	BriefsOfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]DeploymentBrief, error)
	// OfEnvironmentAllTenants returns those that are not deleted, by tenant and name: an environment
	// may be granted to others.
	OfEnvironmentAllTenants(ctx context.Context, env fleet.EnvironmentID) ([]fleet.Deployment, error)
	// Update writes what a user may edit (labels, repository, source, environment, namespace, policy,
	// suspension, pin) and raises Spec.
	Update(ctx context.Context, d fleet.Deployment) error
	// SetRendered records the newest whole revision and clears SourceError. Its Digest names a
	// bundle of the tenant. It and SetSourceError record nothing when nothing but the time is new.
	SetRendered(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Rendered) error
	SetSourceError(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, reason fleet.Reason, message string, at time.Time) error
	// SetDetected records what the newest commit holds, see fleet.Deployment; nothing when it is known.
	SetDetected(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, kind fleet.SourceKind) error
	// Variants returns the variants of a deployment by name; PutVariant inserts or replaces one, and
	// KeepVariants removes all but those named.
	Variants(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Variant, error)
	// VariantsOf returns the variants of many deployments in one query, each by name. Deployments without any are absent.
	VariantsOf(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) (map[fleet.DeploymentID][]fleet.Variant, error)
	PutVariant(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, v fleet.Variant) error
	KeepVariants(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, names []string) error
	// Promote makes d the spec in force and removes the pending one. It writes what Update writes, SourceRevision and
	// Detected; it clears SourceError and leaves Spec as it is.
	Promote(ctx context.Context, d fleet.Deployment) error
	// MarkDeleted sets DeletedAt; the name is free again at once.
	MarkDeleted(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, at time.Time) error
	// Remove deletes the row for good, with its revisions and runs; it fails with ErrExists while
	// targets are left.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
}

// DeploymentBrief is what a deployment takes from its repository, and whether it has had anything of it.
type DeploymentBrief struct {
	ID       fleet.DeploymentID
	Revision string
	Rendered bool
	Pending  bool // it has a pending spec, of this repository or another
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
	Labels      map[string]string // has all of these
	Selector    fleet.LabelSelector
	Text        string // part of name, repository URL, path, commit or source error; ASCII letters in either case
}

// Revisions is what a rollback can go back to.
type Revisions interface {
	// Append keeps a revision as the newest of its deployment and returns its number; one with the
	// same bundles as the newest replaces only its commit and time. All but the newest keep are
	// removed, and the pinned one always stays.
	Append(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Revision, keep int) (int64, error)
	// List returns the kept ones, newest first: a page begins after the number After.
	List(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, page Page) ([]fleet.Revision, error)
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, seq int64) (fleet.Revision, error)
}

// Bundles holds rendered objects by digest, per tenant.
type Bundles interface {
	// Put keeps b; a bundle that is there already is left alone.
	Put(ctx context.Context, b fleet.Bundle) error
	Get(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error)
	// DeleteUnused removes bundles that no deployment, variant, revision or target names and that are older than before.
	DeleteUnused(ctx context.Context, tenant fleet.TenantID, before time.Time) (int, error)
}

// Runs is the aggregate of sync runs. Writes record ChangeRun.
type Runs interface {
	// Create adds a run behind the others of its deployment, and returns its Seq.
	Create(ctx context.Context, r fleet.SyncRun) (int64, error)
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) (fleet.SyncRun, error)
	// OfDeployment returns runs, newest first, in pages by Seq (Page.After is a decimal number).
	OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, page Page) ([]fleet.SyncRun, error)
	// Open returns the runs of a deployment that are not done, in order.
	Open(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.SyncRun, error)
	// OpenAllTenants returns every run that is not done.
	OpenAllTenants(ctx context.Context) ([]fleet.SyncRun, error)
	// Update writes revision, kept, phase, message, commit and times.
	Update(ctx context.Context, r fleet.SyncRun) error
	// SetTargets replaces what a run waits for; Targets returns it by target.
	SetTargets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, targets []fleet.RunTarget) error
	Targets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) ([]fleet.RunTarget, error)
	// WaitingForTarget returns the running run that waits for a target, if any: ErrNotFound.
	WaitingForTarget(ctx context.Context, tenant fleet.TenantID, target fleet.TargetID) (fleet.SyncRun, error)
	// WaitingForTargets is WaitingForTarget for many; targets that no run waits for are absent.
	WaitingForTargets(ctx context.Context, tenant fleet.TenantID, targets []fleet.TargetID) (map[fleet.TargetID]fleet.SyncRun, error)
	SetTarget(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, t fleet.RunTarget) error
	// CountOpenTargets returns how many targets a run still waits for, and how many have failed.
	CountOpenTargets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) (open, failed int, err error)
	// Trim keeps the newest n done runs of each deployment of the tenant.
	Trim(ctx context.Context, tenant fleet.TenantID, n int) error
}
