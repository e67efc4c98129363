package argocd

import (
	"sync"

	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// tenantURL identifies the credential of a repository.
type tenantURL struct{ tenant, url string }

// repositories has the Secrets with which Argo CD reads private repositories.
type repositories struct {
	*secretPool

	desired     sync.Mutex
	credentials map[tenantURL]*fleet.GitCredential
}

func newRepositories(e *Engine, client dynamic.ResourceInterface) *repositories {
	r := &repositories{credentials: map[tenantURL]*fleet.GitCredential{}}
	r.secretPool = newSecretPool(e, client, secretUse{
		kind: "repository", setting: "deliverGitCredentials", annotationURL: annotationRepository,
		count: agentnames.RepositorySecrets, name: agentnames.RepositorySecret, content: r.data, needed: e.neededRepositories,
	})
	return r
}

// set records the newest credential of a repository, or that it has none. The targets of a tenant share it.
func (r *repositories) set(tenant string, source *fleet.EngineSource) {
	if source == nil {
		return
	}
	r.desired.Lock()
	defer r.desired.Unlock()
	r.credentials[tenantURL{tenant, source.RepoURL}] = source.Credential
}

// data returns the content that Argo CD expects of the Secret of a repository.
func (r *repositories) data(key secretKey) (map[string]string, bool) {
	r.desired.Lock()
	defer r.desired.Unlock()
	c, known := r.credentials[tenantURL{key.tenant, key.url}]
	if c == nil {
		return nil, known
	}
	out := map[string]string{"type": "git", "url": key.url, "project": key.project}
	if c.Kind == fleet.CredentialSSH {
		out["sshPrivateKey"] = c.Secret.Reveal()
	} else {
		out["username"], out["password"] = c.Username, c.Secret.Reveal()
	}
	return out, true
}

// neededRepositories returns the repositories of the Applications and targets of this agent.
func (e *Engine) neededRepositories() map[secretKey]bool {
	out := e.cache.keys((*application).repository)
	agent := e.config().agent
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.targets {
		if d := t.newest(); d != nil && d.Source != nil {
			out[secretKey{projectName(agent, d.Tenant, d.State.Limits, d.Source.Environment), d.Tenant, d.Source.RepoURL}] = true
		}
	}
	return out
}
