// Package sqlite keeps the server's state in one SQLite file: the store of a server that is one
// process on one machine. It implements [store.Store] with the aggregates of package sqlstore.
//
// One connection writes, so transactions commit one after another and the sequence numbers of the
// outbox grow in the order of commits. Several connections read, each on the snapshot that it
// began with; in WAL mode they neither block the writer nor wait for it.
//
// Durability: WAL with synchronous=NORMAL. A commit is in the operating system's hands before
// Update returns, so it survives a crash or a kill −9 of the server. A power loss or a crash of
// the kernel may cost the commits since the last checkpoint, but never the consistency of the
// file: the database is then an older one, which is a case that the fleet survives (agents that
// are ahead of the server delete nothing). synchronous=FULL would pay an fsync per status batch.
package sqlite
