package control

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// CreateDeployment is the request for a new deployment.
type CreateDeployment struct {
	Name        string
	Labels      map[string]string
	Source      fleet.Source
	Environment string        // or "owner/environment" if it was granted; "" means fleet.DefaultEnvironment
	Namespace   string        // "" means "default"
	Policy      *fleet.Policy // nil means the default: prune only
	// Suspend creates it suspended.
	Suspend bool
	// Check reads the source first. A definite error refuses the request; anything that could not be checked in
	// time is a warning.
	Check bool
}

// UpdateDeployment changes a deployment; nil fields do not change.
type UpdateDeployment struct {
	Labels      *map[string]string
	Source      *fleet.Source
	Environment *string
	Namespace   *string
	Policy      *fleet.Policy
	// Suspend suspends or resumes it.
	Suspend *bool
	// Check reads a changed source first, as CreateDeployment does.
	Check bool
}

// ListDeployments filters a listing; zero fields match everything. An unknown name matches nothing.
type ListDeployments struct {
	store.Page
	Environment string // name, or "owner/name"
	Agent       string // name
	Repository  string // URL
	Sync        fleet.SyncState
	Health      fleet.Health
	Reason      fleet.Reason // its own, or that of a target
	Labels      map[string]string
	Selector    fleet.LabelSelector
	Text        string
}

// DeploymentView is a deployment for users, summed up over its targets. Its spec is the newest requested one.
type DeploymentView struct {
	fleet.Deployment
	// Pending is why that spec is not in force, and InForce is the deployment with the spec in force; both are
	// nil if the spec is in force.
	Pending *fleet.PendingSpec
	InForce *fleet.Deployment
	Sync    fleet.SyncState
	Health  fleet.Health
	Reason  fleet.Reason // identifies the state
	Message string       // the most important fact for a user: source error, failing object, …
	// Held says why nothing new is sent: suspended, pinned, waiting for a sync run; zero when it would be.
	Held   fleet.Cause
	Counts TargetCounts
	// RepositoryError is why its repository cannot be read; "" when it can.
	RepositoryError string
	// Running is the commit that most targets were sent, RunningOther how many were sent another one.
	Running      string
	RunningOther int
	// Evaluated is the newest evaluated commit of its revision. Its content for the deployment is Rendered,
	// which may be of an older commit. Only set for a single deployment.
	Evaluated string
	// Declared is the file in Git that declares or declared it, or nil.
	Declared *fleet.Declaration
	// Owner is the Kubernetes resource that created it, or nil.
	Owner *fleet.Owned
	// Targets are the first ones, sorted by agent name. Only set for a single deployment.
	Targets []TargetView
	// Operations are the newest running ones, and the newest of all if it failed. Only set for a single
	// deployment.
	Operations []fleet.Operation
	// Warnings are about the current request.
	Warnings []string
}

// TargetView is a target for users.
type TargetView struct {
	fleet.Target
	fleet.View
	ConnectedSince time.Time            // since when the agent is connected; zero while it is not
	Objects        []fleet.ObjectStatus // only on request
	HeldPrunes     int                  // held deletions; only for targets of a single deployment
}

// Rollback selects a kept revision, by its number or its commit.
type Rollback struct {
	Revision int64
	Commit   string // or a prefix of at least 7 characters
}

// CreateRun is the request for a sync: to a branch, tag, or commit, or with "" to the newest commit of the
// source.
type CreateRun struct{ Revision string }

// UpdateRun changes a run that has not started.
type UpdateRun struct{ Revision string }

// CreateRepository is the request for a repository; Credential is a name, or "".
type CreateRepository struct {
	URL, Credential string
	Submodules      bool
	Signers         string // see fleet.Repository
}

// UpdateRepository changes a repository; nil fields do not change.
type UpdateRepository struct {
	Credential *string
	Submodules *bool
	Signers    *string
}

// RepositoryView is a repository for users.
type RepositoryView struct {
	fleet.Repository
	Credential  string // its name, or ""
	Deployments int
}

// CreateCredential is the request for a credential. Its secret is never returned.
type CreateCredential struct {
	Name       string
	Kind       fleet.CredentialKind
	Username   string
	Secret     string // password, token or private key
	KnownHosts string // for SSH
}

// UpdateCredential changes a credential; nil fields do not change.
type UpdateCredential struct{ Username, Secret, KnownHosts *string }

// Webhook has the webhook settings for a Git host.
type Webhook struct {
	Repository fleet.RepositoryID
	Secret     string
}

// HeldPrune is an object whose deletion waits for a confirmation.
type HeldPrune struct {
	store.HeldObject
	Commit string // of the desired state of the target
	// Deleted means that its deployment is being deleted. Another one may have the same name.
	Deleted bool
	// Current means that its agent has reported for the desired state; otherwise the set of held objects may
	// still change.
	Current   bool
	Confirmed bool // and the agent has not deleted it yet
}

// ConfirmPrune confirms held deletions: of the named objects, or of all.
type ConfirmPrune struct {
	Objects []string // as from fleet.ObjectRef.String
	All     bool
	Count   int    // with All: the number of held deletions; an object on two agents counts twice
	Agent   string // only on this agent; "" means on all
}

// ConfirmedPrune has the confirmed deletions.
type ConfirmedPrune struct {
	Objects   []string // each once
	Deletions int      // counted like ConfirmPrune.Count
	Targets   int      // number of changed targets; 0 if all was confirmed before
}
