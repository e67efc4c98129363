// Package kube sends the requests of the builtin engine to the API server: it finds kinds, applies, replaces, releases
// and deletes one object at a time, and reads what explains why a workload is not ready.
//
// A request is a value that has everything it needs ([ApplyRequest], [RemoveRequest]). It shares nothing with the target
// that sends it, so requests of one target run at the same time. The package keeps no state but the kinds that it has
// looked up and decides nothing about a target.
//
// It changes nothing without a check against the live object: whose it is ([Owner.MayApply]), and whether it is still the
// object that was read. Deletions are bound to the UID and the resourceVersion that were read; applies are bound to the
// UID.
//
// A [Client] and a [Mapper] are safe for concurrent use.
package kube
