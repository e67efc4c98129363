// Package postgres stores the state of the server in PostgreSQL, version 15 or later, for servers with several
// replicas. It implements [store.Store] with the aggregates of package sqlstore.
//
// Roles (invariant 7). The owner of the tables only runs [Migrate]. The server logs in with a role that has no
// privileges of its own and can only enter two others: kedge_app, which row-level security limits to the one
// tenant that is set with it, and kedge_fleet, which reads all tenants and is entered only for the methods
// without a tenant. Both are entered for one transaction, so a connection in the pool has no access. [Open]
// refuses a role with more privileges.
//
// Isolation. View is REPEATABLE READ and read-only. Update is READ COMMITTED: at any higher level, a change of
// many targets would fail as long as their agents report. Consistent decisions are ensured here instead. A
// transaction that changes the structure of a tenant (anything except statuses, connections, and events)
// commits only if no other transaction has changed what it read since its first read. Otherwise it runs again,
// with others locked out. What it read is a list of subjects, which each statement of sqlstore names: a tenant,
// its visitors, the settings. Therefore tenants do not block each other. See kedge_finish in the migrations.
//
// Order (invariant 10). Records of the outbox and events are written last, in one message with the commit,
// under a lock that is held from the first number until they are visible. Therefore a reader always sees a
// prefix of the outbox, and the newest number is a valid cursor. Readers never wait, and an open transaction
// blocks no other.
package postgres
