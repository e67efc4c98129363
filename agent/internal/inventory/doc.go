// Package inventory keeps, inside the cluster, the list of objects that each target has applied, and decides which of them may
// be deleted.
//
// A [Record] lists the objects of one target. An [Inventory] stores it in one or more ConfigMaps (chunks) in the namespace of
// the agent, each small enough for any API server and complete in itself. Reading returns the union of the chunks, so a write
// that stops in between leaves more entries than needed, never fewer. An extra entry costs one read before it is removed; a
// missing entry would be an orphan. For the same reason the engine adds entries before it applies the objects, and removes
// them only after the objects are gone. Each chunk names all chunks, so that a lost chunk is noticed and does not look like
// fewer objects.
//
// [Plan] is the only place that chooses what to delete. It is a pure function, and its answer is "nothing" whenever anything is
// in doubt. An inventory that is absent or damaged never leads to a deletion.
//
// A Store is safe for concurrent use. An [Inventory] is written by one goroutine at a time and may be read by others.
package inventory
