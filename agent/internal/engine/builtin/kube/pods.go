package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/unready"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

var (
	podsResource        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	eventsResource      = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	replicaSetsResource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
)

// Limits of what is read for one workload.
const (
	podLimit    = 200 // pods, in one list
	eventsOf    = 2 * unready.MaxPods
	eventLimit  = 50 // events of one pod
	replicaSets = 50
)

// PodReader reads the pods of one workload and their events.
type PodReader struct {
	client   *Client
	ref      fleet.ObjectRef
	uid      string
	selector string // of its pods
}

// NewPodReader makes a reader for a workload. It fails when the manifest selects no pods.
func NewPodReader(c *Client, ref fleet.ObjectRef, uid string, m manifest.Object) (*PodReader, error) {
	reader := &PodReader{client: c, ref: ref, uid: uid}
	if ref.Kind == "Job" {
		reader.selector = "job-name=" + ref.Name
		return reader, nil
	}
	text, _, err := unstructured.NestedMap(m.Content, "spec", "selector")
	if err != nil {
		return nil, err
	}
	var labels metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(text, &labels); err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(&labels)
	if err != nil || selector.Empty() {
		return nil, fmt.Errorf("%s selects no pods: %w", ref, err)
	}
	reader.selector = selector.String()
	return reader, nil
}

// Explain returns why the workload is not ready, or zero if nothing tells, and the resourceVersion of the list of its pods.
func (l *PodReader) Explain(ctx context.Context) (why fleet.Cause, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.client.timing.Request)
	defer cancel()
	list, err := l.client.Dynamic.Resource(podsResource).Namespace(l.ref.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: l.selector, Limit: podLimit})
	if err != nil {
		return fleet.Cause{}, "", err
	}
	found := unready.Pods(typed[corev1.Pod](list.Items))
	for i := range found[:min(len(found), eventsOf)] {
		if found[i].Warnings, err = l.warnings(ctx, found[i].UID); err != nil {
			return fleet.Cause{}, "", err
		}
	}
	if why := unready.Explain(found); !why.IsZero() {
		return why, list.GetResourceVersion(), nil
	}
	why, err = l.explainController(ctx)
	return why, list.GetResourceVersion(), err
}

// explainController returns why the controller of the pods creates none; zero when it has no warnings.
func (l *PodReader) explainController(ctx context.Context) (fleet.Cause, error) {
	name, uid := l.ref.String(), l.uid
	if l.ref.Kind == "Deployment" {
		set, err := l.newestReplicaSet(ctx)
		if err != nil || set == nil {
			return fleet.Cause{}, err
		}
		name, uid = "ReplicaSet "+set.Name, string(set.UID)
	}
	warnings, err := l.warnings(ctx, uid)
	if err != nil {
		return fleet.Cause{}, err
	}
	return unready.ExplainController(name, warnings), nil
}

// newestReplicaSet returns the newest ReplicaSet of a Deployment; nil when there is none, or reading it is forbidden.
func (l *PodReader) newestReplicaSet(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	list, err := l.client.Metadata.Resource(replicaSetsResource).Namespace(l.ref.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: l.selector, Limit: replicaSets})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ours := slices.DeleteFunc(list.Items, func(s metav1.PartialObjectMetadata) bool {
		owner := metav1.GetControllerOf(&s)
		return owner == nil || string(owner.UID) != l.uid
	})
	if len(ours) == 0 {
		return nil, nil
	}
	newest := slices.MaxFunc(ours, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return &newest, nil
}

// warnings returns the warning events of one object; none when reading them is forbidden.
func (l *PodReader) warnings(ctx context.Context, uid string) ([]unready.Warning, error) {
	list, err := l.client.Dynamic.Resource(eventsResource).Namespace(l.ref.Namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + uid, Limit: eventLimit})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return unready.Warnings(typed[corev1.Event](list.Items)), nil
}

// Await waits until a pod of the workload changes, at most for d.
func (l *PodReader) Await(ctx context.Context, version string, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if version != "" {
		events, err := l.client.Dynamic.Resource(podsResource).Namespace(l.ref.Namespace).
			Watch(ctx, metav1.ListOptions{LabelSelector: l.selector, ResourceVersion: version})
		if err == nil {
			defer events.Stop()
			select {
			case <-ctx.Done():
			case <-events.ResultChan():
			}
			return
		}
	}
	<-ctx.Done()
}

// typed converts objects to their type. It leaves out objects that cannot be converted.
func typed[T any](items []unstructured.Unstructured) []T {
	out := make([]T, 0, len(items))
	for i := range items {
		var object T
		if runtime.DefaultUnstructuredConverter.FromUnstructured(items[i].Object, &object) == nil {
			out = append(out, object)
		}
	}
	return out
}
