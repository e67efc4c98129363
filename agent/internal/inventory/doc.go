// Package inventory remembers, inside the cluster, which objects each target has put there, and
// decides from that what may be deleted.
//
// A [Record] lists the objects of one target. It is kept as a [Inventory]: one or more ConfigMaps in
// the agent's own namespace, each small enough for any API server, each complete in itself. What
// is read back is the union of the chunks, so that a write which stops half way leaves at most
// more entries than needed, never fewer: an entry too many costs one read before it is dropped,
// an entry too few would be an orphan. For the same reason the engine adds entries before it
// applies the objects and removes them only after the objects are confirmed gone. Each chunk names
// the chunks that there are, so that a lost one is noticed and not taken for fewer objects.
//
// [Plan] is the one place that chooses what to delete. It is a pure function, and it answers
// "nothing" whenever anything is in doubt. An inventory that is absent or damaged never leads to a
// deletion.
//
// A Store is safe for concurrent use. An [Inventory] is written by one goroutine at a time and may be read by others.
package inventory
