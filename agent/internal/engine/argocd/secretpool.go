package argocd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// secretKey identifies a Secret: what it is for, in one project. url is that of a repository or of an API server.
type secretKey struct{ project, tenant, url string }

// secretPool writes Secrets for Argo CD. Each belongs to one project, so that no other project can use it. The agent may use
// Secrets of fixed names only, because the other Secrets in the namespace hold credentials of others.
type secretPool struct {
	secretUse
	engine *Engine
	client dynamic.ResourceInterface

	mu      sync.Mutex               // held during writes
	read    map[string]bool          // names whose Secrets were read, whether they exist or not
	secrets map[string]*pooledSecret // by name
	writes  map[secretKey]int        // number of changes of a Secret
}

// secretUse is what the Secrets of a pool are for.
type secretUse struct {
	kind          string // as Argo CD names it in the label
	setting       string // of the agent, which gives it the permissions
	annotationURL string
	count         int
	name          func(agentNamespace string, n int) string
	// content returns the data of a Secret; nil means that there must be none. known is false before the server has said.
	content func(secretKey) (data map[string]string, known bool)
	// needed returns the keys that Applications and targets of the agent use.
	needed func() map[secretKey]bool
}

// pooledSecret is one Secret.
type pooledSecret struct {
	live *unstructured.Unstructured // as it was read or written last; nil if it was deleted
	key  secretKey                  // zero if it is not of this agent
	// former is the project for which the agent of an earlier ID, that was installed here, wrote the Secret; otherwise "".
	former string
	// written is the data that this process wrote last; nil before that.
	written map[string]string
	stop    context.CancelFunc // ends its watch
}

func newSecretPool(e *Engine, client dynamic.ResourceInterface, use secretUse) *secretPool {
	return &secretPool{secretUse: use, engine: e, client: client, read: map[string]bool{}, secrets: map[string]*pooledSecret{}, writes: map[secretKey]int{}}
}

// notAllowedError means that the agent may not write the Secrets of a pool.
type notAllowedError struct {
	secretUse
	err error
}

func (e *notAllowedError) Error() string {
	return fmt.Sprintf("the agent may not write the Secrets of a %s: apply its manifest again, with %s (%v)", e.kind, e.setting, e.err)
}

func (e *notAllowedError) Unwrap() error { return e.err }

func (r *secretPool) notAllowed(err error) error {
	if apierrors.IsForbidden(err) {
		return &notAllowedError{r.secretUse, err}
	}
	return err
}

// ensure makes a Secret as the server desires it. It changes nothing before the server has said what that is. writes rises
// with each change. restored is set if somebody else had changed the Secret.
func (r *secretPool) ensure(ctx context.Context, key secretKey) (writes int, restored bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, known := r.content(key)
	if !known {
		return 0, false, nil
	}
	if err := r.load(ctx); err != nil {
		if data == nil && apierrors.IsForbidden(err) {
			err = nil // without permission, there is none
		}
		return 0, false, r.notAllowed(err)
	}
	name, s := r.find(key)
	if data == nil {
		if s != nil {
			err = r.remove(ctx, name)
		}
		return r.writes[key], false, err
	}
	if s != nil && s.live != nil {
		restored, err = r.update(ctx, s, data)
	} else {
		restored, err = s != nil, r.create(ctx, name, key, data)
	}
	return r.writes[key], restored && err == nil, err
}

// update changes a Secret that is not as desired. It reports whether somebody else had changed it.
func (r *secretPool) update(ctx context.Context, s *pooledSecret, data map[string]string) (restored bool, err error) {
	next := r.secretOf(s.live, s.key, data)
	if sameSecret(s.live, next) {
		s.written = data
		return false, nil
	}
	restored = s.written != nil && maps.Equal(s.written, data)
	written, err := r.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err != nil {
		return false, r.notAllowed(fmt.Errorf("writing the Secret of %s %s: %w", r.kind, s.key.url, err))
	}
	s.live, s.written = written, data
	r.writes[s.key]++
	return restored, nil
}

// load reads each Secret once. It tries again what failed as long as it reads any: with an API server that often fails, it
// would never be complete otherwise.
func (r *secretPool) load(ctx context.Context) error {
	for {
		before := len(r.read)
		err := r.readRest(ctx)
		if err == nil || apierrors.IsForbidden(err) || ctx.Err() != nil || len(r.read) == before {
			return err
		}
	}
}

// maxReadFailures bounds the requests to an API server that does not answer.
const maxReadFailures = 20

// readRest reads the Secrets that were not read yet. After an error it continues with the next one.
func (r *secretPool) readRest(ctx context.Context) error {
	var failed []error
	for n := range r.count {
		name := r.name(r.engine.namespace, n)
		if r.read[name] {
			continue
		}
		err := r.readOne(ctx, name)
		if apierrors.IsForbidden(err) {
			return err
		}
		if err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil || len(failed) == maxReadFailures {
			break
		}
	}
	return errors.Join(failed...)
}

// readOne reads a Secret. One that is not of this agent keeps its name.
func (r *secretPool) readOne(ctx context.Context, name string) error {
	live, err := r.client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.read[name] = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	s := &pooledSecret{live: live}
	switch labels, annotations := live.GetLabels(), live.GetAnnotations(); {
	case labels[labelAgent] == string(r.engine.config().agent):
		s.key = secretKey{annotations[annotationProject], annotations[annotationTenant], annotations[r.annotationURL]}
	case labels[labelAgent] != "" && labels[labelManagedBy] == managedBy:
		// The name contains the namespace of this agent, in which one agent is installed at a time.
		s.former = annotations[annotationProject]
	}
	r.read[name], r.secrets[name] = true, s
	r.follow(name, s)
	return nil
}

// find returns the Secret of a key, or a free name and nil. The name is "" if none is free.
func (r *secretPool) find(key secretKey) (string, *pooledSecret) {
	free := ""
	for n := r.count - 1; n >= 0; n-- {
		name := r.name(r.engine.namespace, n)
		s := r.secrets[name]
		if s == nil {
			free = name
		} else if s.key == key {
			return name, s
		}
	}
	return free, nil
}

func (r *secretPool) create(ctx context.Context, name string, key secretKey, data map[string]string) error {
	if name == "" {
		return r.exhausted(key)
	}
	empty := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": map[string]any{"name": name, "namespace": r.engine.engineNamespace},
	}}
	written, err := r.client.Create(ctx, r.secretOf(empty, key, data), metav1.CreateOptions{FieldManager: managedBy})
	if err != nil {
		if apierrors.IsAlreadyExists(err) && r.secrets[name] == nil {
			delete(r.read, name) // the next pass reads what somebody else has created
		}
		return r.notAllowed(fmt.Errorf("creating the Secret of %s %s: %w", r.kind, key.url, err))
	}
	s := r.secrets[name]
	if s == nil {
		s = &pooledSecret{key: key}
		r.secrets[name] = s
		r.follow(name, s)
	}
	s.live, s.written = written, data
	r.writes[key]++
	return nil
}

// remove deletes a Secret, if it is still the one that was read.
func (r *secretPool) remove(ctx context.Context, name string) error {
	s := r.secrets[name]
	if s.live != nil {
		err := r.client.Delete(ctx, name, onlyThis(s.live))
		if apierrors.IsForbidden(err) {
			r.engine.log.Warn("a Secret stays, because the agent may not delete it any more: delete it by hand", "secret", name)
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
func (r *secretPool) release(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(ctx); apierrors.IsForbidden(err) {
		return nil // without permission, there is none
	} else if err != nil {
		return err
	}
	used, err := r.usedByFormer(ctx)
	failed := []error{err}
	needed := r.needed()
	for name, s := range r.secrets {
		own := s.key != (secretKey{}) && !needed[s.key]
		if own || s.former != "" && used != nil && !used[s.former] {
			failed = append(failed, r.remove(ctx, name))
		}
	}
	return errors.Join(failed...)
}

// usedByFormer returns the projects that Applications have, if there are Secrets of an earlier agent; otherwise nil. Argo CD may
// still apply with these Secrets.
func (r *secretPool) usedByFormer(ctx context.Context) (map[string]bool, error) {
	for _, s := range r.secrets {
		if s.former != "" {
			return r.engine.usedProjects(ctx)
		}
	}
	return nil, nil
}

// exhausted says what all Secrets of the pool are used for.
func (r *secretPool) exhausted(key secretKey) error {
	own, former := 0, 0
	for _, s := range r.secrets {
		switch {
		case s.key != (secretKey{}):
			own++
		case s.former != "":
			former++
		}
	}
	return fmt.Errorf("the agent cannot store the credential of %s %s: it has one Secret for each %s of each AppProject, at most %d, and all are in use "+
		"(%d by this agent, %d by an earlier agent in namespace %q whose Applications still exist, %d by others): use another agent, or delete deployments",
		r.kind, key.url, r.kind, r.count, own, former, r.engine.namespace, r.count-own-former)
}
