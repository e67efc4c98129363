package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// Event is an Event of Kubernetes.
type Event struct {
	Metadata       Metadata `json:"metadata"`
	InvolvedObject struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
	} `json:"involvedObject"`
	Type           string    `json:"type"`
	Reason         string    `json:"reason"`
	Message        string    `json:"message"`
	Count          int       `json:"count"`
	FirstTimestamp time.Time `json:"firstTimestamp"`
	LastTimestamp  time.Time `json:"lastTimestamp"`
	EventTime      time.Time `json:"eventTime"`
	Series         struct {
		Count            int       `json:"count"`
		LastObservedTime time.Time `json:"lastObservedTime"`
	} `json:"series"`
}

// Last is when the event happened last.
func (e Event) Last() time.Time {
	for _, at := range []time.Time{e.Series.LastObservedTime, e.LastTimestamp, e.EventTime, e.FirstTimestamp} {
		if !at.IsZero() {
			return at
		}
	}
	return e.Metadata.CreationTimestamp
}

// Times is how often it happened.
func (e Event) Times() int { return max(1, e.Count, e.Series.Count) }

// Ref is the object that the event is about.
func (e Event) Ref() fleet.ObjectRef {
	o := e.InvolvedObject
	return refOf(OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}, o.Namespace)
}

// EventNamespaces are the namespaces where events about these objects can be. Events about objects without a namespace are in
// the namespace default.
func EventNamespaces(objects []apiv1.Object) []string {
	var out []string
	for _, o := range objects {
		if o.Namespace == "" {
			o.Namespace = "default"
		}
		out = append(out, o.Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *Cluster) eventPath(namespace string) string {
	return c.path("api", "v1", "namespaces", namespace, "events")
}

// Events returns the events of a namespace about the objects of a deployment and those that they own.
func (c *Cluster) Events(ctx context.Context, namespace string, owners *Owners) ([]Event, error) {
	events, _, err := list[Event](ctx, c, c.eventPath(namespace), "", "")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(events, func(e Event) bool { return !owners.HasEvent(ctx, e) }), nil
}

// EventsAbout returns the events about one object.
func (c *Cluster) EventsAbout(ctx context.Context, o apiv1.Object) ([]Event, error) {
	events, _, err := list[Event](ctx, c, c.eventPath(EventNamespaces([]apiv1.Object{o})[0]), "involvedObject.name="+o.Name+",involvedObject.kind="+o.Kind, "")
	return slices.DeleteFunc(events, func(e Event) bool { return e.Ref().Group != o.Group || e.InvolvedObject.Namespace != o.Namespace }), err
}

// FollowEvents follows all events of a namespace, also those about other objects.
func (c *Cluster) FollowEvents(ctx context.Context, namespace string, f Follower[Event]) error {
	return follow(ctx, c, c.eventPath(namespace), f)
}

// HasEvent reports whether an event is about an object of the deployment, or about one that such an object owns and that still
// exists.
func (o *Owners) HasEvent(ctx context.Context, e Event) bool {
	ref, uid := e.Ref(), e.InvolvedObject.UID
	if o.isOwn(ref) {
		return true
	}
	if uid == "" {
		return false
	}
	o.mu.Lock()
	if o.learnLocked(ctx, ref, uid) != nil {
		o.parents[uid] = nil // of a kind that the user may not read
	}
	parent := o.parents[uid]
	o.mu.Unlock()
	if parent == nil {
		return false
	}
	has, err := o.Has(ctx, ref, Metadata{OwnerReferences: []OwnerReference{*parent}})
	return has && err == nil
}
