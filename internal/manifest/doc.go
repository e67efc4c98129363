// Package manifest is a set of Kubernetes objects: how one is parsed, told from another, put in
// order, and named by digest. It never talks to a cluster and reads no files.
//
// Values pass from text to [Object] to [Set] to canonical bytes and back:
//
//	YAML, JSON ──Parse──▶ []Object ──NewSet──▶ Set ──Pack──▶ digest + zstd ──Unpack──▶ Set
//
// Numbers have the semantics of the API server: an integer that fits is an int64, everything else
// a float64, and 1.0 is the integer 1. Equal sets have equal bytes and so equal digests.
//
// A Set is immutable: whoever holds one must not change the contents of its objects (use
// [Object.Unstructured] for a copy). Everything here is safe for concurrent use under that rule.
package manifest
