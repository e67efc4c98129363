package argocd

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// application is an Application as it was read. raw belongs to the cache of the watch and must not be changed.
type application struct {
	raw    *unstructured.Unstructured
	spec   map[string]any
	op     *operation // the requested operation; nil when there is none
	status status
}

// status is the part of the status of an Application that the engine uses.
type status struct {
	Sync struct {
		Status     string `json:"status"`
		Revision   string `json:"revision"`
		ComparedTo struct {
			Source      map[string]any `json:"source"`
			Destination map[string]any `json:"destination"`
		} `json:"comparedTo"`
	} `json:"sync"`
	Health     healthStatus     `json:"health"`
	Resources  []resourceStatus `json:"resources"`
	Conditions []struct {
		Type               string      `json:"type"`
		Message            string      `json:"message"`
		LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	} `json:"conditions"`
	OperationState *operationState `json:"operationState"`
	ReconciledAt   *metav1.Time    `json:"reconciledAt"`
}

type healthStatus struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// resourceStatus is the state of one object. Argo CD lists objects of the source, and objects in the cluster that it
// tracks for the Application.
type resourceStatus struct {
	Group           string        `json:"group"`
	Version         string        `json:"version"`
	Kind            string        `json:"kind"`
	Namespace       string        `json:"namespace"`
	Name            string        `json:"name"`
	Status          string        `json:"status"`
	Hook            bool          `json:"hook"`
	RequiresPruning bool          `json:"requiresPruning"`
	Health          *healthStatus `json:"health"`
}

func (r resourceStatus) ref() fleet.ObjectRef {
	return fleet.ObjectRef{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// operation is a request to Argo CD.
type operation struct {
	Info        []info         `json:"info,omitempty"`
	InitiatedBy initiator      `json:"initiatedBy"`
	Sync        *syncOperation `json:"sync,omitempty"`
}

type info struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type initiator struct {
	Username  string `json:"username,omitempty"`
	Automated bool   `json:"automated,omitempty"`
}

type syncOperation struct {
	Revision    string         `json:"revision,omitempty"`
	Source      map[string]any `json:"source,omitempty"`
	Prune       bool           `json:"prune,omitempty"`
	Resources   []syncResource `json:"resources,omitempty"`
	Manifests   []string       `json:"manifests,omitempty"`
	SyncOptions []string       `json:"syncOptions,omitempty"`
}

type syncResource struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

type operationState struct {
	Phase      string         `json:"phase"`
	Message    string         `json:"message"`
	Operation  operation      `json:"operation"`
	StartedAt  metav1.Time    `json:"startedAt"`
	FinishedAt *metav1.Time   `json:"finishedAt"`
	RetryCount int64          `json:"retryCount"`
	SyncResult map[string]any `json:"syncResult"`
}

// Phases of an operation.
const (
	phaseRunning     = "Running"
	phaseTerminating = "Terminating"
	phaseSucceeded   = "Succeeded"
)

// parse reads an Application. Fields of another type than expected count as absent: a newer Argo CD must not stop the
// engine, and what is absent is never a reason to delete.
func parse(raw *unstructured.Unstructured) *application {
	a := &application{raw: raw}
	a.spec, _, _ = unstructured.NestedMap(raw.Object, "spec")
	decode(raw.Object["status"], &a.status)
	if raw.Object["operation"] != nil {
		a.op = &operation{}
		decode(raw.Object["operation"], a.op)
	}
	return a
}

func decode(from, into any) {
	text, err := json.Marshal(from)
	if err == nil {
		_ = json.Unmarshal(text, into) // see parse
	}
}

func (a *application) annotation(name string) string { return a.raw.GetAnnotations()[name] }

func (a *application) version() fleet.Version { return parseVersion(a.annotation(annotationVersion)) }

// repository returns the repository of the Application. Its deployment is TENANT/NAME.
func (a *application) repository() secretKey {
	project, _, _ := unstructured.NestedString(a.spec, "project")
	url, _, _ := unstructured.NestedString(a.spec, "source", "repoURL")
	return secretKey{project, a.tenant(), url}
}

// server returns the URL of the API server that the Application applies to.
func (a *application) server() string {
	server, _, _ := unstructured.NestedString(a.spec, "destination", "server")
	return server
}

// cluster returns the cluster of the Application.
func (a *application) cluster() secretKey {
	key := a.repository()
	key.url = a.server()
	return key
}

// busy reports whether an operation is requested or runs.
func (a *application) busy() bool {
	state := a.status.OperationState
	return a.op != nil || state != nil && (state.Phase == phaseRunning || state.Phase == phaseTerminating)
}

// requested reports whether an operation is requested and has not started.
func (a *application) requested() bool {
	state := a.status.OperationState
	return a.op != nil && (state == nil || state.Phase != phaseRunning && state.Phase != phaseTerminating)
}

// neverApplied is the name of the ConfigMap in the manifest of an operation that deletes: see startDelete.
const neverApplied = "kedge-never-applied"

// objects returns the objects, without hooks, which exist during a sync only, and without the manifest of a deletion, which
// Argo CD compares after the operation.
func (a *application) objects() []resourceStatus {
	return slices.DeleteFunc(slices.Clone(a.status.Resources), func(r resourceStatus) bool {
		return r.Hook || r.Kind == "ConfigMap" && r.Group == "" && r.Name == neverApplied
	})
}

// held returns the holds, by the name of the object. all holds every object: the annotation cannot be read.
func (a *application) held() (holds map[string]inventory.Hold, all bool) {
	text := a.annotation(annotationHeld)
	if text == "" {
		return map[string]inventory.Hold{}, false
	}
	if err := json.Unmarshal([]byte(text), &holds); err != nil {
		return map[string]inventory.Hold{}, true
	}
	return holds, false
}

// list reads an annotation that holds a list.
func (a *application) list(annotation string) (out []string) {
	if text := a.annotation(annotation); text != "" && json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

// base returns the number of objects before the last change.
func (a *application) base() int {
	n, err := strconv.Atoi(a.annotation(annotationObjects))
	if err != nil {
		return 0
	}
	return n
}

// without returns a copy of a value without empty maps and lists, which Argo CD adds and removes.
func without(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inner := range v {
			if inner = without(inner); inner != nil {
				out[key] = inner
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = without(v[i])
		}
		return out
	case int64:
		return float64(v)
	case bool:
		if !v {
			return nil
		}
	case string:
		if v == "" {
			return nil
		}
	}
	return value
}

// union returns the sorted elements of lists.
func union(lists ...[]string) []string {
	all := map[string]bool{}
	for _, list := range lists {
		for _, item := range list {
			all[item] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
