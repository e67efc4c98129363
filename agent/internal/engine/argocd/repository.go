package argocd

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
)

// repository is a Git repository of a project.
type repository struct{ project, tenant, url string }

// tenantURL identifies the credential of a repository.
type tenantURL struct{ tenant, url string }

// repositories writes the Secrets with which Argo CD reads private repositories. Each belongs to one project, so that no
// other project can use it. The agent may use Secrets of fixed names only, because the other Secrets in the namespace hold
// credentials of clusters.
type repositories struct {
	engine *Engine
	client dynamic.ResourceInterface

	mu      sync.Mutex // held during writes
	loaded  bool
	secrets map[string]*repositorySecret // by name
	writes  map[repository]int           // number of changes of its Secret

	desired     sync.Mutex
	credentials map[tenantURL]*fleet.GitCredential
}

// repositorySecret is one Secret.
type repositorySecret struct {
	live *unstructured.Unstructured // as it was read or written last; nil if it was deleted
	repo repository
	// written is the credential that this process wrote last; nil before that.
	written *fleet.GitCredential
	stop    context.CancelFunc // ends its watch
}

func newRepositories(e *Engine, client dynamic.ResourceInterface) *repositories {
	return &repositories{engine: e, client: client, credentials: map[tenantURL]*fleet.GitCredential{}, secrets: map[string]*repositorySecret{}, writes: map[repository]int{}}
}

// notAllowedError means that the agent may not write the Secrets of repositories.
type notAllowedError struct{ err error }

func (e *notAllowedError) Error() string {
	return "the agent may not write the Secrets of repositories: apply its manifest again, with deliverGitCredentials (" + e.err.Error() + ")"
}

func (e *notAllowedError) Unwrap() error { return e.err }

func notAllowed(err error) error {
	if apierrors.IsForbidden(err) {
		return &notAllowedError{err}
	}
	return err
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

// credential returns the newest credential of a repository. known is false before the server has sent a source with it.
func (r *repositories) credential(repo repository) (c *fleet.GitCredential, known bool) {
	r.desired.Lock()
	defer r.desired.Unlock()
	c, known = r.credentials[tenantURL{repo.tenant, repo.url}]
	return c, known
}

// ensure makes the Secret of a repository as the server desires it. It changes nothing before the server has sent a source
// with the repository. writes rises with each change, after which Argo CD has to read the repository again. restored is set
// if somebody else had changed the Secret.
func (r *repositories) ensure(ctx context.Context, repo repository) (writes int, restored bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	credential, known := r.credential(repo)
	if !known {
		return 0, false, nil
	}
	if err := r.load(ctx); err != nil {
		if credential == nil && apierrors.IsForbidden(err) {
			err = nil // without permission, there is none
		}
		return 0, false, notAllowed(err)
	}
	name, s := r.find(repo)
	if credential == nil {
		if s != nil {
			err = r.remove(ctx, name)
		}
		return r.writes[repo], false, err
	}
	if s != nil && s.live != nil {
		restored, err = r.update(ctx, s, *credential)
	} else {
		restored, err = s != nil, r.create(ctx, name, repo, *credential)
	}
	return r.writes[repo], restored && err == nil, err
}

// update changes a Secret that is not as desired. It reports whether somebody else had changed it.
func (r *repositories) update(ctx context.Context, s *repositorySecret, c fleet.GitCredential) (restored bool, err error) {
	next := secretOf(s.live, s.repo, c, r.engine.config().agent)
	if sameSecret(s.live, next) {
		s.written = &c
		return false, nil
	}
	restored = s.written != nil && *s.written == c
	written, err := r.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err != nil {
		return false, notAllowed(fmt.Errorf("writing the Secret of repository %s: %w", s.repo.url, err))
	}
	s.live, s.written = written, &c
	r.writes[s.repo]++
	return restored, nil
}

// load reads the Secrets once. A Secret that is not of this agent keeps its name.
func (r *repositories) load(ctx context.Context) error {
	if r.loaded {
		return nil
	}
	for n := range agentnames.RepositorySecrets {
		name := agentnames.RepositorySecret(r.engine.namespace, n)
		if r.secrets[name] != nil {
			continue
		}
		live, err := r.client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading Secret %s: %w", name, err)
		}
		s := &repositorySecret{live: live}
		if annotations := live.GetAnnotations(); live.GetLabels()[labelAgent] == string(r.engine.config().agent) {
			s.repo = repository{annotations[annotationProject], annotations[annotationTenant], annotations[annotationRepository]}
		}
		r.secrets[name] = s
		r.follow(name, s)
	}
	r.loaded = true
	return nil
}

// find returns the Secret of a repository, or a free name and nil. The name is "" if none is free.
func (r *repositories) find(repo repository) (string, *repositorySecret) {
	free := ""
	for n := agentnames.RepositorySecrets - 1; n >= 0; n-- {
		name := agentnames.RepositorySecret(r.engine.namespace, n)
		s := r.secrets[name]
		if s == nil {
			free = name
		} else if s.repo == repo {
			return name, s
		}
	}
	return free, nil
}

func (r *repositories) create(ctx context.Context, name string, repo repository, c fleet.GitCredential) error {
	if name == "" {
		return fmt.Errorf("the agent delivers the credentials of at most %d repositories, and that of %s is one more", agentnames.RepositorySecrets, repo.url)
	}
	empty := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": map[string]any{"name": name, "namespace": r.engine.engineNamespace},
	}}
	written, err := r.client.Create(ctx, secretOf(empty, repo, c, r.engine.config().agent), metav1.CreateOptions{FieldManager: managedBy})
	if err != nil {
		r.loaded = r.loaded && !apierrors.IsAlreadyExists(err) // the next pass reads what somebody else has created
		return notAllowed(fmt.Errorf("creating the Secret of repository %s: %w", repo.url, err))
	}
	s := r.secrets[name]
	if s == nil {
		s = &repositorySecret{repo: repo}
		r.secrets[name] = s
		r.follow(name, s)
	}
	s.live, s.written = written, &c
	r.writes[repo]++
	return nil
}

// remove deletes the Secret of a repository, if it is still the one that was read.
func (r *repositories) remove(ctx context.Context, name string) error {
	s := r.secrets[name]
	if s.live != nil {
		err := r.client.Delete(ctx, name, onlyThis(s.live))
		if apierrors.IsForbidden(err) {
			r.engine.log.Warn("the Secret of a repository stays, because the agent may not delete it any more: delete it by hand", "secret", name)
			err = nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting Secret %s: %w", name, err)
		}
	}
	s.stop()
	delete(r.secrets, name)
	return nil
}

// release deletes the Secrets that neither an Application nor a target needs any more.
func (r *repositories) release(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.load(ctx) != nil {
		return // without permission, there is none; otherwise the next call does it
	}
	needed := r.engine.neededRepositories()
	for name, s := range r.secrets {
		if s.repo == (repository{}) || needed[s.repo] {
			continue
		}
		if err := r.remove(ctx, name); err != nil {
			r.engine.log.Warn("a Secret of a repository that nothing uses stays", obs.Err(err))
		}
	}
}

// neededRepositories returns the repositories of the Applications and targets of this agent.
func (e *Engine) neededRepositories() map[repository]bool {
	out := e.cache.repositories()
	agent := e.config().agent
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.targets {
		if d := t.newest(); d != nil && d.Source != nil {
			out[repository{projectName(agent, d.Tenant, d.State.Limits), d.Tenant, d.Source.RepoURL}] = true
		}
	}
	return out
}
