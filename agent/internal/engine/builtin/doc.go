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
//     arrived and was applied whole (or a tombstone), what still carries the label of the target,
//     and what no other target desires. The label is read just before, and the deletion is bound to
//     that very reading by UID and resource version.
//   - It takes over nothing that exists without the label of the target, unless the deployment says
//     adopt, and nothing that another target owns, unless that target is here and no longer wants
//     it. PATCHes carry the UID of the object that was looked at.
//   - It touches nothing of the agent's own installation.
//
// # Deletion of a deployment
//
// A tombstone deletes the objects of its target in the reverse order of kinds, each step gone before the
// next, so that a controller outlives the objects that it has to finalize. Protected kinds
// (Namespace, CustomResourceDefinition, PersistentVolumeClaim) and objects annotated
// kedge.dev/prune: disabled are kept, named in the status, and released: their ownership labels are
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
