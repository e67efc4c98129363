package cluster

import (
	"context"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/plaintext"
)

// Pod is a pod, as far as its logs and sessions need it.
type Pod struct {
	Metadata struct {
		Metadata
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Name string `json:"name"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Init      []Container `json:"initContainerStatuses"`
		Main      []Container `json:"containerStatuses"`
		Ephemeral []Container `json:"ephemeralContainerStatuses"`
	} `json:"status"`
}

// Container is the status of a container of a pod.
type Container struct {
	Name         string         `json:"name"`
	RestartCount int            `json:"restartCount"`
	Ready        bool           `json:"ready"`
	State        ContainerState `json:"state"`
	LastState    ContainerState `json:"lastState"`
}

// ContainerState is the state of a container: one of them is set.
type ContainerState struct {
	Running    *struct{} `json:"running"`
	Terminated *struct{} `json:"terminated"`
}

// Containers are the containers of the pod that have a status.
func (p Pod) Containers() []Container {
	return slices.DeleteFunc(slices.Concat(p.Status.Init, p.Status.Main, p.Status.Ephemeral), func(c Container) bool { return !printable(c.Name) })
}

// HasLog reports whether the container, or the one before its last restart, has a log.
func (c Container) HasLog(previous bool) bool {
	if previous {
		return c.LastState.Terminated != nil
	}
	// A container that waits for its next start has the log of its last run.
	return c.State.Running != nil || c.State.Terminated != nil || c.LastState.Terminated != nil
}

// DefaultContainer is the container that kubectl chooses for a session.
func (p Pod) DefaultContainer() string {
	name := p.Metadata.Annotations["kubectl.kubernetes.io/default-container"]
	if name == "" && len(p.Spec.Containers) > 0 {
		name = p.Spec.Containers[0].Name
	}
	return name
}

// Running reports whether a container of the pod runs, and the pod is not being deleted.
func (p Pod) Running(container string) bool {
	return p.Metadata.DeletionTimestamp == "" && slices.ContainsFunc(p.Containers(), func(c Container) bool {
		return c.Name == container && c.State.Running != nil
	})
}

// PodNamespaces are the namespaces where pods of these objects can be.
func PodNamespaces(objects []apiv1.Object) []string {
	var out []string
	for _, o := range objects {
		if o.Namespace != "" && canOwnPods(o) {
			out = append(out, o.Namespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// canOwnPods excludes the kinds of Kubernetes that never own pods, so that nobody needs permission for pods in a namespace that
// has no others. Custom resources often own workloads.
func canOwnPods(o apiv1.Object) bool {
	switch o.Group {
	case "":
		return o.Kind == "Pod" || o.Kind == "ReplicationController"
	case "apps", "batch":
		return true
	case "autoscaling", "policy":
		return false
	}
	return !strings.HasSuffix(o.Group, ".k8s.io")
}

func (c *Cluster) podPath(namespace string, more ...string) string {
	return c.path(append([]string{"api", "v1", "namespaces", namespace, "pods"}, more...)...)
}

// Pods returns the pods of a deployment in a namespace. If it finds none, the error says what could not be read.
func (c *Cluster) Pods(ctx context.Context, namespace string, owners *Owners) ([]Pod, error) {
	pods, _, err := list[Pod](ctx, c, c.podPath(namespace), "", "")
	if err != nil {
		return nil, err
	}
	var out []Pod
	var unknown error
	for _, p := range pods {
		has, err := owners.HasPod(ctx, p)
		if err != nil {
			unknown = err
		}
		if has {
			out = append(out, p)
		}
	}
	if len(out) > 0 {
		unknown = nil
	}
	return out, unknown
}

// printable reports whether a name cannot control a terminal. An API server has no others, but somebody else may answer for it.
func printable(name string) bool {
	return plaintext.Text(name, 0) == name && !strings.ContainsAny(name, "\r\n\t")
}

// HasPod is Has for a pod.
func (o *Owners) HasPod(ctx context.Context, p Pod) (bool, error) {
	if !printable(p.Metadata.Name) {
		return false, nil
	}
	return o.Has(ctx, fleet.ObjectRef{Kind: "Pod", Namespace: p.Metadata.Namespace, Name: p.Metadata.Name}, p.Metadata.Metadata)
}

// FollowPods follows all pods of a namespace. Those that belong to other deployments are among them.
func (c *Cluster) FollowPods(ctx context.Context, namespace string, f Follower[Pod]) error {
	return follow(ctx, c, c.podPath(namespace), f)
}

// Runs reports whether a container of a pod still runs, after this number of restarts.
func (c *Cluster) Runs(ctx context.Context, p Pod, container string, restarts int) (bool, error) {
	var now Pod
	if err := c.read(ctx, c.podPath(p.Metadata.Namespace, p.Metadata.Name), nil, "", &now); err != nil {
		return false, err
	}
	return now.Metadata.UID == p.Metadata.UID && slices.ContainsFunc(now.Containers(), func(c Container) bool {
		return c.Name == container && c.State.Running != nil && c.RestartCount == restarts
	}), nil
}

// Log opens the log of a container. The caller closes it.
func (c *Cluster) Log(ctx context.Context, p Pod, container string, options url.Values) (io.ReadCloser, error) {
	query := url.Values{"container": {container}}
	for name, values := range options {
		query[name] = values
	}
	return c.client.Open(ctx, c.podPath(p.Metadata.Namespace, p.Metadata.Name, "log"), query, "")
}
