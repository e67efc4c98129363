// Package builtin is the engine that applies objects itself, by server-side apply.
//
// # How it works
//
// Each target has one goroutine that owns all of its state; requests run beside it and hand their
// results back, so that it never waits for one while something newer is known. What a target is
// to do is always derived from state (what is desired, what the cluster is known to hold), never
// from a list of steps that could be lost: a kill at any moment is mended by the next run.
//
//	Set ──▶ resolve kinds ──▶ widen inventory ──▶ apply, step by step ──▶ prune ──▶ Synced
//	                                   ▲                │                              │
//	         a watch sees drift or a deletion;   an object fails ──▶ retried alone     │
//	         a retry is due ───────────┴──────────────── (nothing is pruned) ◀─────────┘
//
// What each object waits for is its phase: see there. A round of a target is one call of advance,
// which starts whatever can be started now.
//
// # Order
//
// Steps are those of kinds: all of one step were tried before the next begins. A bundle may ask for
// more by the annotations kedge.dev/wave and kedge.dev/depends-on: then an object is held back until
// what comes before it is ready, on the very event of the watch that says so. Nothing that is in place
// waits for anything, so that drift is healed meanwhile; a newer version begins at once, whatever was
// waited for; pruning comes after the last wave, and goes the other way round. An object that is not
// ready within the time that the deployment allows is called failed, and nothing else happens.
//
// # What the policy decides
//
//   - Conflicts with other managers fail an object by name of field and manager; force takes the fields
//     over, except replicas from an autoscaler.
//   - A field that cannot be changed fails an object; replace deletes it and creates it anew, after the
//     API server has said that it would accept the new one, and never if its kind is protected.
//   - Drift is corrected, reported or ignored. What is left deviating is put right by the next version.
//     How it deviates is what a dry run of its apply says.
//   - Fields to ignore are sent when an object is created. Afterwards an apply sends of them just what
//     is ours and as it is, so that neither value nor owner changes.
//   - A dry run compares every object in the same way, and writes nothing, not even the inventory.
//     Tombstones and detaching are carried out all the same.
//
// # What it costs
//
// An unchanged bundle costs no request, a changed object one PATCH, and the bundle one write of
// the inventory. A new object is read once before it is first applied. Drift, deletion and health
// come by watch; full objects are looked at and let go, so that memory grows with the number of
// managed objects, not with the cluster.
//
// # What it never does
//
//   - It deletes nothing but what its inventory lists, what no longer is desired by a bundle that
//     arrived and was applied whole (or a tombstone, or to be replaced), what still carries the label of the target,
//     and what no other target desires. The label is read just before, and the deletion is bound to
//     that very reading by UID and resource version.
//     A Namespace is kept while anything of any deployment is in it, and a CustomResourceDefinition while
//     there is an object of its kind, whoever has confirmed them.
//   - It takes over nothing that exists without the label of the target, unless the deployment says
//     adopt, in which case an event says whose it was, and nothing that another target owns, unless that target is here and no longer wants
//     it. PATCHes carry the UID of the object that was looked at.
//   - It touches nothing of the agent's own installation.
//
// # Deletion of a deployment
//
// A tombstone deletes the objects of its target in the reverse order of waves and kinds, each step gone before the
// next, so that a controller outlives the objects that it has to finalize. Protected kinds
// (Namespace, CustomResourceDefinition, PersistentVolumeClaim) and objects that an annotation keeps
// (see keepMarks) are kept, named in the status, and released: their ownership labels are
// removed, so that no dead target owns them, while the annotation kedge.dev/deployment stays. A
// deployment of the same tenant and name takes them up again without adopt, so that deleting and
// creating one again works; for every other one they are foreign objects.
//
// # Letting go of a target
//
// A detached target releases every object in the same way, deletes none, removes its inventory last
// and is forgotten. Until the last object is released the inventory lists all of them, so that a kill
// in between neither deletes nor re-owns anything: what still carries the label is released by the
// next run, and what does not is taken for released. When the target comes back (an agent was
// relabelled away and back) its objects are taken up again by the name of the deployment in their
// annotation, without adopt. Fields that somebody else has taken meanwhile are then a conflict, which
// is reported, and which adopt decides for the manifest.
//
// # Limits
//
// What a grant does not allow, by namespace or kind, is refused object by object before anything is
// asked of the API server: it is not applied, not adopted, not pruned, and not kept from other
// targets. With its deployment it is released, not deleted.
package builtin
