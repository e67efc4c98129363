// Package sqlstore is what the SQL stores have in common: the aggregates of [store.Tx] with one
// text per query for all databases, and the hub behind Notify. It opens nothing and knows no
// driver: each store implements [Conn] on a transaction of its own.
//
// The SQL keeps to what SQLite and PostgreSQL both take ($1 placeholders, ON CONFLICT, RETURNING).
// Where they differ the text is SQLite's, in a form that the other store can recognise and rewrite:
// lists of ids are "IN (SELECT value FROM json_each($n))", labels are "json_each($n) AS p", a table of which rows are looked up for each row of the
// one before is "CROSS JOIN x y ON (…)", without parentheses inside, and a row that is read to be written
// is marked by a comment, "/* FOR NO KEY UPDATE */", which SQLite with its one writer need not heed.
// No text depends on how many things are asked for: a connection keeps what it has prepared.
// Statements for many rows have two texts: see Bulk. Only Tx.record and bound.last write to tables whose numbers readers use as cursors.
//
// Every statement says whose rows it is about (invariant 7): an aggregate gets at the database
// only through Tx.of(tenant) or, for the few methods that take no tenant, Tx.everywhere(). It also
// says what its answer depends on, so that of two transactions that each decide on what the other
// writes only one commits: see Subject.
package sqlstore
