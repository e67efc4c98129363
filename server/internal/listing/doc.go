// Package listing reads whole listings of the store, page by page, in the transaction of its caller.
//
// It must not filter by permission: callers have checked that. It never returns a part of a listing without an
// error, because a short listing looks like deletions. It holds no state, so it is safe for concurrent use.
package listing
