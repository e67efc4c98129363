// Package builtin is the engine that applies objects itself, by server-side apply.
//
// # How it works
//
// Each target has one goroutine that owns all of its state. Requests run beside it and post their results, so it never
// waits for a request while something newer is known. What a target does next is always derived from state: what is desired,
// and what the cluster is known to have. There is no list of steps that a restart could lose.
//
//	Set ──▶ resolve kinds ──▶ widen inventory ──▶ apply, step by step ──▶ prune ──▶ Synced
//	                                   ▲                │                              │
//	     a watch reports drift or a deletion;    an object fails ──▶ retried alone     │
//	     a retry is due ───────────────┴──────────────── (nothing is pruned) ◀─────────┘
//
// The phase of an object is what it waits for: see phase, which has the diagram. A pass is one call of advance, which starts
// every request that can start.
//
// The package decides. What it builds on is in packages of its own: kube sends requests, watch reports changes, fieldset
// compares fields, and the inventory is kept by package inventory.
//
// # Order
//
// Objects are applied in the order of their kinds: every object of a step is tried before the next step starts. A bundle may
// declare more by the annotations kedge.dev/wave and kedge.dev/depends-on: then an object waits until the objects before it
// are ready. Objects that are in place wait for nothing, so drift is corrected meanwhile. A newer version begins at once.
// Pruning comes after the last wave, in the reverse order. An object that is not ready within the time that the deployment
// allows is reported as failed, with no other effect.
//
// # What the policy decides
//
//   - A conflict with another field manager fails an object. The message names the field and the manager. force takes the
//     fields over, except replicas from an autoscaler.
//   - A change of an immutable field fails an object. replace deletes and recreates it, after a dry run has shown that the
//     API server accepts the new one, and never if its kind is protected.
//   - Drift is corrected, reported or ignored. The next version restores what deviates. A dry run of the apply tells how an
//     object deviates.
//   - Fields to ignore are sent when an object is created. Later applies preserve their values and owners.
//   - A dry run compares every object and writes nothing, not even the inventory. Tombstones and detachments are carried out
//     all the same.
//
// # What it costs
//
// An unchanged bundle costs no request, a changed object one PATCH, and a bundle one write of the inventory. A new object is
// read once before it is first applied. Drift, deletions and health come by watch. Objects are not cached, so memory grows
// with the number of managed objects and not with the cluster.
//
// # What it never does
//
//   - It deletes only objects that its inventory lists, that are not desired any more by a bundle that arrived and was applied
//     whole (or by a tombstone, or that are replaced), that still carry the label of the target, and that no other target
//     desires. The label is read right before, and the deletion is bound to that read by UID and resourceVersion. A Namespace
//     is kept while it contains an object of any deployment, and a CustomResourceDefinition while an object of its kind
//     exists, even if a user has confirmed their deletion.
//   - It does not take over an existing object without the label of the target, unless the deployment says adopt; an event
//     names the former owner then. It does not take over an object of another target, unless that target is of this engine
//     and does not desire it any more. Applies carry the UID of the object that was read.
//   - It does not touch the installation of an agent.
//
// # Deletion of a deployment
//
// A tombstone deletes the objects of its target in the reverse order of waves and kinds. Each step is gone before the next, so
// that a controller outlives the objects that it has to finalize. Protected kinds (Namespace, CustomResourceDefinition,
// PersistentVolumeClaim) and objects that an annotation keeps are kept, named in the status, and released: the labels of
// Kedge are removed, while the annotation kedge.dev/deployment stays. A deployment of the same tenant and name takes them
// over again without adopt, so that deleting and creating a deployment works. For every other deployment they are foreign
// objects.
//
// A tombstone with HoldProtected holds protected kinds instead, like a bundle that they have left: the target is OutOfSync
// until a user confirms their deletion, or until a later version releases them. Objects that an annotation keeps are
// released after that, so that no confirmed Namespace takes one with it.
//
// # Detaching a target
//
// A detached target releases every object in the same way, deletes none, removes its inventory last and is forgotten. Until
// the last object is released the inventory lists all of them, so that a restart in between neither deletes nor takes over
// anything: an object with the label is released by the next run, and an object without it counts as released. When the target
// comes back (an agent was relabelled away and back), it takes its objects over again by the annotation with the name of the
// deployment, without adopt. Fields that somebody else has taken over meanwhile are a conflict, which is reported; adopt
// decides it for the manifest.
//
// # Limits
//
// An object that a grant does not allow, by namespace or kind, is refused before any request: it is not applied, not adopted,
// not pruned, and not kept from other targets. When its deployment is deleted it is released, not deleted.
package builtin
