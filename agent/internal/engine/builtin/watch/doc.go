// Package watch watches managed objects, CustomResourceDefinitions and namespaces for the builtin engine.
//
// [Watches] keeps one stream of events per kind in use, or per kind and namespace where the agent may not watch more, and
// tells observers about the objects that they are interested in. [Definitions] and [Namespaces] watch only while a target
// waits for a kind or a namespace that does not exist.
//
// The package keeps no objects, so its memory grows with the number of managed objects and not with their size. It changes
// nothing in the cluster and decides nothing.
//
// A stream that is interrupted continues where it ended. A stream that fails for long is stale: its observers are told that
// what they know may be outdated ([State]). Callbacks run with the lock of the caller's stream, so they must not block.
// Everything is safe for concurrent use.
package watch
