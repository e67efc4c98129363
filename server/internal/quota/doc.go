// Package quota checks that a tenant has no more of something than it may have.
//
// It must not decide who may change a quota: control does. Its invariant is that a check counts in the
// transaction that adds, so that two that add at once cannot both pass. It holds no state, so it is safe for
// concurrent use.
package quota
