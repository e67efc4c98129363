// Package changefeed reads the change records of the store (the outbox) once per process and hands them to
// every follower in memory, so that many followers cost one query per commit.
//
// It must not interpret records: followers decide which of them matter. It knows nothing of callers and
// permissions; control checks those before it follows for a user.
//
// Invariants: a follower gets every record that is for it once and in the order of commits, or an error that
// says that it has to read the current state again ([ErrCursorLost], [ErrRewound]). The cursor is the
// guarantee; the notification of the store is only a hint.
//
// Concurrency: a [Feed] has one reader, Run, and any number of followers. All are safe for concurrent use; a
// slow follower delays neither the reader nor the others.
package changefeed
