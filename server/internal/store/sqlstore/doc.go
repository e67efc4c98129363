// Package sqlstore is the common part of the SQL stores: the aggregates of [store.Tx], with one text per query
// for all databases, and the hub for Notify. It opens no connection and knows no driver: each store implements
// [Conn] on its own transaction.
//
// The SQL uses the common subset of SQLite and PostgreSQL ($1 placeholders, ON CONFLICT, RETURNING). Where they
// differ, the text is that of SQLite, in a form that the other store recognizes and rewrites: lists of ids are
// "IN (SELECT value FROM json_each($n))", labels are "json_each($n) AS p", a lookup of rows for each row of the
// previous table is "CROSS JOIN x y ON (…)", without parentheses inside, and a row that is read before it is
// written has a comment, "/* FOR NO KEY UPDATE */", which SQLite with its one writer ignores. The text does not
// depend on the number of arguments, so that a connection can reuse prepared statements. Statements for many
// rows have two texts: see Bulk. Only Tx.record and bound.last write to tables whose numbers readers use as
// cursors.
//
// Every statement names the tenant of its rows (invariant 7): an aggregate accesses the database only through
// Tx.of(tenant) or, for the few methods without a tenant, Tx.everywhere(). It also names what its result
// depends on, so that of two transactions that each decide on data that the other writes, only one commits: see
// Subject.
package sqlstore
