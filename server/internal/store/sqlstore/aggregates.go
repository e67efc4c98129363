package sqlstore

import "github.com/kedge-dev/kedge/server/internal/store"

// Settings implements [store.Tx].
func (t *Tx) Settings() store.Settings { return settings{t} }

// Tenants implements [store.Tx].
func (t *Tx) Tenants() store.Tenants { return tenants{t} }

// Members implements [store.Tx].
func (t *Tx) Members() store.Members { return members{t} }

// People implements [store.Tx].
func (t *Tx) People() store.People { return people{t} }

// Agents implements [store.Tx].
func (t *Tx) Agents() store.Agents { return agents{t} }

// AgentConfigs implements [store.Tx].
func (t *Tx) AgentConfigs() store.AgentConfigs { return agentConfigs{t} }

// Connections implements [store.Tx].
func (t *Tx) Connections() store.Connections { return connections{t} }

// Replicas implements [store.Tx].
func (t *Tx) Replicas() store.Replicas { return replicas{t} }

// Tokens implements [store.Tx].
func (t *Tx) Tokens() store.Tokens { return tokens{t} }

// Environments implements [store.Tx].
func (t *Tx) Environments() store.Environments { return environments{t} }

// Grants implements [store.Tx].
func (t *Tx) Grants() store.Grants { return grants{t} }

// AccessRules implements [store.Tx].
func (t *Tx) AccessRules() store.AccessRules { return accessRules{t} }

// Repositories implements [store.Tx].
func (t *Tx) Repositories() store.Repositories { return repositories{t} }

// Credentials implements [store.Tx].
func (t *Tx) Credentials() store.Credentials { return credentials{t} }

// Deployments implements [store.Tx].
func (t *Tx) Deployments() store.Deployments { return deployments{t} }

// PendingSpecs implements [store.Tx].
func (t *Tx) PendingSpecs() store.PendingSpecs { return pendingSpecs{t} }

// Declarations implements [store.Tx].
func (t *Tx) Declarations() store.Declarations { return declarations{t} }

// Owners implements [store.Tx].
func (t *Tx) Owners() store.Owners { return owners{t} }

// GitLabProjects implements [store.Tx].
func (t *Tx) GitLabProjects() store.GitLabProjects { return gitLabProjects{t} }

// Revisions implements [store.Tx].
func (t *Tx) Revisions() store.Revisions { return revisions{t} }

// Targets implements [store.Tx].
func (t *Tx) Targets() store.Targets { return targets{t} }

// Bundles implements [store.Tx].
func (t *Tx) Bundles() store.Bundles { return bundles{t} }

// Runs implements [store.Tx].
func (t *Tx) Runs() store.Runs { return runs{t} }

// Operations implements [store.Tx].
func (t *Tx) Operations() store.Operations { return operations{t} }

// EngineUpgrades implements [store.Tx].
func (t *Tx) EngineUpgrades() store.EngineUpgrades { return engineUpgrades{t} }

// Audit implements [store.Tx].
func (t *Tx) Audit() store.Audit { return audit{t} }

// Events implements [store.Tx].
func (t *Tx) Events() store.Events { return events{t} }

// Changes implements [store.Tx].
func (t *Tx) Changes() store.Changes { return changes{t} }

// Replies implements [store.Tx].
func (t *Tx) Replies() store.Replies { return replies{t} }
