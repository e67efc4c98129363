package argocd

import (
	"context"
	"encoding/base64"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kedge-dev/kedge/internal/obs"
)

// Labels and annotations of Secrets.
const (
	labelSecretType      = "argocd.argoproj.io/secret-type"
	annotationTenant     = "kedge.dev/tenant"
	annotationProject    = "kedge.dev/project"
	annotationRepository = "kedge.dev/repository"
	annotationCluster    = "kedge.dev/cluster" // the URL of the API server
)

// secretOf returns a Secret with the content that Argo CD expects.
func (r *secretPool) secretOf(live *unstructured.Unstructured, key secretKey, values map[string]string) *unstructured.Unstructured {
	out := live.DeepCopy()
	setLabel(out, labelAgent, string(r.engine.config().agent))
	setLabel(out, labelManagedBy, managedBy)
	setLabel(out, labelSecretType, r.kind)
	setAnnotations(out, map[string]string{annotationTenant: key.tenant, annotationProject: key.project, r.annotationURL: key.url})
	data := map[string]any{}
	for key, value := range values {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	out.Object["data"] = data
	return out
}

func sameSecret(a, b *unstructured.Unstructured) bool {
	return sameMeta(a, b) && reflect.DeepEqual(a.Object["data"], b.Object["data"])
}

// follow watches a Secret by its name, which is all that the agent may read, and wakes the targets when somebody changes
// it.
func (r *secretPool) follow(name string, s *pooledSecret) {
	ctx, cancel := context.WithCancel(r.engine.lifetime())
	s.stop = cancel
	r.engine.work.Go(func() {
		r.engine.follow(ctx, func(ctx context.Context) error { return r.watch(ctx, name) }, func(err error) {
			if err != nil {
				r.engine.log.Warn("watching a Secret failed", obs.Err(err))
			}
		})
	})
}

// watch reads a Secret, and follows its changes until the watch ends.
func (r *secretPool) watch(ctx context.Context, name string) error {
	live, err := r.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	if err == nil {
		options.ResourceVersion = live.GetResourceVersion()
	}
	r.changed(ctx, name, live, err != nil)
	return watchFrom(ctx, r.client, options, func(obj *unstructured.Unstructured, deleted bool) { r.changed(ctx, name, obj, deleted) })
}

// changed records a change that a watch reports, and wakes the targets if somebody else has made it. live is nil if the
// Secret does not exist.
func (r *secretPool) changed(ctx context.Context, name string, live *unstructured.Unstructured, deleted bool) {
	r.mu.Lock()
	s := r.secrets[name]
	switch {
	case s == nil || ctx.Err() != nil:
	case deleted && (s.live == nil || live != nil && live.GetUID() != s.live.GetUID()):
	case deleted:
		s.live = nil
		defer r.engine.wakeAll()
	case s.live == nil || revision(live) > revision(s.live):
		s.live = live
		defer r.engine.wakeAll()
	}
	r.mu.Unlock()
}
