// Package sqlite stores the state of the server in one SQLite file, for a server that is one process on one
// machine. It implements [store.Store] with the aggregates of package sqlstore.
//
// One connection writes, so transactions commit one after another and the sequence numbers of the outbox grow
// in the order of commits. Several connections read, each from its own snapshot; in WAL mode they neither block
// the writer nor wait for it.
//
// Durability: WAL with synchronous=NORMAL. The operating system has a commit before Update returns, so it
// survives a crash or a kill −9 of the server. A power loss or a crash of the kernel may lose the commits since
// the last checkpoint, but never the consistency of the file: the database is then an older one, which the
// fleet survives (agents that are ahead of the server delete nothing). synchronous=FULL would cost an fsync per
// status batch.
package sqlite
