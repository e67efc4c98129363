// Package fieldset answers questions about the fields of an object: which of them an apply owns, which of them
// changed, who changed them, and which of them a policy ignores.
//
// A [Set] is a set of fields as metadata.managedFields lists it. [Rules] are the rules of a policy that name fields
// to ignore. [Diff] describes a change for users. [ConflictsOf] reads the conflicts out of a refused apply.
//
// The package is pure: it sends no request and keeps no state. All of it is safe for concurrent use, as long as
// nobody changes the objects that it reads.
//
// Set is a tree of its own and not a fieldpath.Set, for two reasons. Inventories keep [Set.Projection], so what is
// hashed must not change. Most objects of a cluster are never compared, and the tree costs nothing but its decoding.
// Path elements are read and written by fieldpath.
package fieldset
