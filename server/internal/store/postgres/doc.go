// Package postgres keeps the server's state in PostgreSQL, 15 or later: the store of a server that
// is more than one process. It implements [store.Store] with the aggregates of package sqlstore.
//
// Roles (invariant 7). The owner of the tables runs [Migrate] and nothing else. The server logs in
// as a role that has no right of its own and can do nothing but enter two others: kedge_app, which
// row-level security confines to the one tenant that is set with it, and kedge_fleet, which reads
// all tenants and is entered only for the methods that take none. Both are entered for the length
// of a transaction, so a connection that goes back to the pool sees nothing at all. [Open] refuses
// a role that is more than that.
//
// Isolation. View is REPEATABLE READ and read-only. Update is READ COMMITTED: at any higher level a
// change of many targets would fail as long as their agents keep reporting. What it takes to decide
// on what was read is done here instead. A transaction that changed the structure of a tenant
// (anything but statuses, connections and events) commits only if nobody else has changed what it
// looked at since it first did, and is run again otherwise, that time with others kept out. What it
// looked at is a list of subjects, which each statement of sqlstore names: a tenant, who visits it,
// the settings. So tenants do not get into each other's way. See kedge_finish in the migrations.
//
// Order (invariant 10). Records of the outbox and events are written last, in one message with the
// commit, under a lock that is held from the first number that is taken until they are visible. So
// a reader sees a prefix of the outbox, always, and the newest number is a place to go on from.
// Readers wait for nobody and a transaction that is left open holds nobody up.
package postgres
