// Package manifest handles sets of Kubernetes objects: it parses, identifies, orders, and digests them. It
// never connects to a cluster and reads no files.
//
// Values pass from text to [Object] to [Set] to canonical bytes and back:
//
//	YAML, JSON ──Parse──▶ []Object ──NewSet──▶ Set ──Pack──▶ digest + zstd ──Unpack──▶ Set
//
// Numbers have the semantics of the API server: an integer that fits is an int64, everything else a float64,
// and 1.0 is the integer 1. Equal sets have equal bytes and therefore equal digests.
//
// A Set is immutable: do not change the contents of its objects (use [Object.Unstructured] for a copy). Under
// that rule, everything here is safe for concurrent use.
package manifest
