package kube

import (
	"encoding/base64"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// serverFields are set by the API server. They are in Git when somebody commits the output of kubectl get, and would
// make every apply fail or conflict.
var serverFields = []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"}

// body makes the body of an apply: the manifest with its namespace, labels and annotations. uid binds the request to the
// object that was read; "" creates one.
func (o Owner) body(m manifest.Object, ref fleet.ObjectRef, uid string, yieldReplicas bool) *unstructured.Unstructured {
	obj := m.Unstructured()
	for _, field := range serverFields {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	o.mark(obj, ref, uid)
	if ref.Group == "" && ref.Kind == "Secret" {
		moveStringData(obj)
	}
	if yieldReplicas {
		unstructured.RemoveNestedField(obj.Object, "spec", "replicas")
	}
	return obj
}

// mark sets the kind, the name, the namespace, and the labels and annotations of Kedge.
func (o Owner) mark(obj *unstructured.Unstructured, ref fleet.ObjectRef, uid string) {
	obj.SetGroupVersionKind(GVK(ref))
	obj.SetName(ref.Name)
	if ref.Namespace == "" {
		unstructured.RemoveNestedField(obj.Object, "metadata", "namespace")
	} else {
		obj.SetNamespace(ref.Namespace)
	}
	obj.SetLabels(with(obj.GetLabels(), map[string]string{LabelAgent: string(o.Agent), LabelTarget: string(o.Target)}))
	obj.SetAnnotations(with(obj.GetAnnotations(), map[string]string{AnnotationDeployment: o.Deployment}))
	if uid != "" {
		_ = unstructured.SetNestedField(obj.Object, uid, "metadata", "uid")
	}
}

func with(m, more map[string]string) map[string]string {
	out := fleet.CloneLabels(m)
	maps.Copy(out, more)
	return out
}

// moveStringData moves stringData of a Secret to data. The API server does the same but leaves the ownership at
// stringData, where a change of the value is never seen.
func moveStringData(obj *unstructured.Unstructured) {
	plain, ok, err := unstructured.NestedStringMap(obj.Object, "stringData")
	if err != nil || !ok {
		return
	}
	data, _, err := unstructured.NestedMap(obj.Object, "data")
	if err != nil {
		return
	}
	if data == nil {
		data = map[string]any{}
	}
	for key, value := range plain {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	obj.Object["data"] = data
	delete(obj.Object, "stringData")
}
