package control

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// CreateDeployment asks for a new deployment.
type CreateDeployment struct {
	Name        string
	Labels      map[string]string
	Source      fleet.Source
	Environment string        // or "owner/environment" when it was granted; "" means fleet.DefaultEnvironment
	Namespace   string        // "" means "default"
	Policy      *fleet.Policy // nil means to prune, and nothing else
	// Check reads the source first. What is certainly wrong with it is an error, and nothing is stored;
	// what could not be found out in time is a warning.
	Check bool
}

// UpdateDeployment asks for a deployment to be changed; what is nil stays as it is.
type UpdateDeployment struct {
	Labels      *map[string]string
	Source      *fleet.Source
	Environment *string
	Namespace   *string
	Policy      *fleet.Policy
	// Check reads a changed source first, as CreateDeployment does.
	Check bool
}

// ListDeployments narrows a listing; zero fields match everything. What it names by a name that does
// not exist matches nothing.
type ListDeployments struct {
	store.Page
	Environment string // name, or "owner/name"
	Agent       string // name
	Repository  string // URL
	Sync        fleet.SyncState
	Health      fleet.Health
	Labels      map[string]string
	Selector    fleet.LabelSelector
	Text        string
}

// DeploymentView is a deployment as users see it, summed up over its targets. Its spec is the one that was asked for
// last.
type DeploymentView struct {
	fleet.Deployment
	// Pending says why that spec is not in force, and InForce is the deployment with the spec that is; both are nil
	// when it is in force.
	Pending *fleet.PendingSpec
	InForce *fleet.Deployment
	Sync    fleet.SyncState
	Health  fleet.Health
	Reason  fleet.Reason // identifies the state
	Message string       // the first thing a user should know: source error, failing object, …
	// Held says why nothing new is sent: suspended, pinned, waiting for a sync run; "" when it would be.
	Held   string
	Counts TargetCounts
	// Running is the commit that most targets were sent, RunningOther how many were sent another one.
	Running      string
	RunningOther int
	// Evaluated is up to which commit of its revision it was evaluated: what that commit holds for it is what
	// Rendered has, which may be of an older one. Only where one deployment is asked for.
	Evaluated string
	// Declared says which file in Git declares it; nil when none does or did.
	Declared *fleet.Declaration
	// Targets are the first ones, by the names of their agents. Only where one deployment is asked for.
	Targets []TargetView
	// Operations are the newest ones that are not done, and the newest of all when it failed. Only
	// where one deployment is asked for.
	Operations []fleet.Operation
	// Warnings are about the request that this is the answer to.
	Warnings []string
}

// TargetView is a target as users see it.
type TargetView struct {
	fleet.Target
	fleet.View
	Objects    []fleet.ObjectStatus // only where asked for
	HeldPrunes int                  // deletions that wait to be confirmed; only of the targets of one deployment
}

// Rollback names a kept revision, by its number or by its commit.
type Rollback struct {
	Revision int64
	Commit   string // or a beginning of it of at least 7 characters
}

// CreateRun asks for a sync: to a branch, tag or commit, or with "" to the newest of the source.
type CreateRun struct{ Revision string }

// UpdateRun changes a run that has not started.
type UpdateRun struct{ Revision string }

// CreateRepository asks for a repository; Credential is the name of one, or "".
type CreateRepository struct {
	URL, Credential string
	Submodules      bool
	Signers         string // see fleet.Repository
}

// UpdateRepository asks for a repository to be changed; what is nil stays as it is.
type UpdateRepository struct {
	Credential *string
	Submodules *bool
	Signers    *string
}

// RepositoryView is a repository as users see it.
type RepositoryView struct {
	fleet.Repository
	Credential  string // its name; "" when there is none
	Deployments int
}

// CreateCredential asks for a credential. Its secret is never returned.
type CreateCredential struct {
	Name       string
	Kind       fleet.CredentialKind
	Username   string
	Secret     string // password, token or private key
	KnownHosts string // for SSH
}

// UpdateCredential asks for a credential to be changed; what is nil stays as it is.
type UpdateCredential struct{ Username, Secret, KnownHosts *string }

// Webhook is what a Git host has to be told to announce pushes.
type Webhook struct {
	Repository fleet.RepositoryID
	Secret     string
}

// HeldPrune is an object whose deletion waits to be confirmed.
type HeldPrune struct {
	store.HeldObject
	Commit string // what is desired of the target
	// Current says that its agent speaks of just that; otherwise it has not answered yet, and what it holds
	// back may be other objects soon.
	Current   bool
	Confirmed bool // and the agent has not deleted it yet
}

// ConfirmPrune asks for held deletions to be carried out: of the named objects, or of all.
type ConfirmPrune struct {
	Objects []string // as fleet.ObjectRef.String
	All     bool
	Count   int    // with All: how many there are, an object on two agents counted twice
	Agent   string // only on this one; "" means on all that hold them
}

// ConfirmedPrune is what was confirmed.
type ConfirmedPrune struct {
	Objects   []string // each once
	Deletions int      // counted as ConfirmPrune.Count is
	Targets   int      // that were told; 0 when all was confirmed before
}
