package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxDepth limits how far owners are followed: a pod of a CronJob has two.
const maxDepth = 8

// Owners knows which objects of a cluster belong to a deployment: its own objects, and those that are created because of
// them, such as the ReplicaSets and pods of a Deployment. Labels do not count. It is safe for concurrent use.
type Owners struct {
	in  *Cluster
	own map[fleet.ObjectRef]bool // without versions

	mu      sync.Mutex
	parents map[string]*OwnerReference // by UID; nil for objects without an owner
}

// NewOwners returns the owners for the objects of a deployment.
func NewOwners(in *Cluster, objects []apiv1.Object) *Owners {
	o := &Owners{in: in, own: map[fleet.ObjectRef]bool{}, parents: map[string]*OwnerReference{}}
	for _, object := range objects {
		o.own[fleet.ObjectRef{Group: object.Group, Kind: object.Kind, Namespace: object.Namespace, Name: object.Name}] = true
	}
	return o
}

// Has reports whether an object belongs to the deployment. On an error it does not know.
func (o *Owners) Has(ctx context.Context, ref fleet.ObjectRef, m Metadata) (bool, error) {
	if o.isOwn(ref) {
		return true, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	parent := parentOf(m)
	for range maxDepth {
		if parent == nil {
			return false, nil
		}
		up := refOf(*parent, ref.Namespace)
		if o.isOwn(up) {
			return true, nil
		}
		if err := o.learnLocked(ctx, up, parent.UID); err != nil {
			return false, err
		}
		parent = o.parents[parent.UID]
	}
	return false, nil
}

// isOwn reports whether the deployment itself contains an object.
func (o *Owners) isOwn(ref fleet.ObjectRef) bool {
	ref.Version = ""
	if o.own[ref] {
		return true
	}
	ref.Namespace = "" // the owner of an object may be cluster-scoped
	return o.own[ref]
}

// learnLocked reads the owners of all objects of a kind, unless the object with this UID is known.
func (o *Owners) learnLocked(ctx context.Context, ref fleet.ObjectRef, uid string) error {
	if _, known := o.parents[uid]; known {
		return nil
	}
	path, err := o.in.collection(ctx, ref)
	if err != nil {
		return err
	}
	items, _, err := list[struct {
		Metadata Metadata `json:"metadata"`
	}](ctx, o.in, path, "", metadataOnly)
	if err != nil {
		return err
	}
	for _, item := range items {
		o.parents[item.Metadata.UID] = parentOf(item.Metadata)
	}
	if _, known := o.parents[uid]; !known {
		o.parents[uid] = nil // it is deleted
	}
	return nil
}

// parentOf returns the owner that controls an object, or else its first owner.
func parentOf(m Metadata) *OwnerReference {
	if len(m.OwnerReferences) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(m.OwnerReferences, func(r OwnerReference) bool { return r.Controller }))
	return &m.OwnerReferences[i]
}

func refOf(r OwnerReference, namespace string) fleet.ObjectRef {
	group, version, ok := strings.Cut(r.APIVersion, "/")
	if !ok {
		group, version = "", r.APIVersion
	}
	return fleet.ObjectRef{Group: group, Version: version, Kind: r.Kind, Namespace: namespace, Name: r.Name}
}
