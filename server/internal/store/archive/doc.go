// Package archive defines the portable form of a server database, which kedge-server backup writes and
// kedge-server restore reads. It knows tables, columns, and four kinds of value, but neither database, so that
// you can restore a backup of one database into the other.
//
// An archive is lines of JSON in one zstd stream, in this order:
//
//	the Manifest
//	per table, parents before children:
//	  {"table": …, "columns": [{"name": …, "kind": …}, …]}
//	  one array per row
//	{"rows": how many in all, "sha256": of every line before this one}
//
// Bytes are base64, times are as in the columns. Secrets are as in the database: encrypted or hashed. The
// content of Git is not included.
//
// Data that only matters while a server runs is not included: see Transient.
package archive

import "slices"

// Kind is the kind of the values of a column.
type Kind string

// The kinds of value. An archive does not distinguish a bool from an int of 0 or 1.
const (
	Int   Kind = "int"
	Bool  Kind = "bool"
	Text  Kind = "text"
	Bytes Kind = "bytes"
)

// Column is one column of a table.
type Column struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
}

// Table is one table with the columns that are copied. Computed columns are not copied.
type Table struct {
	Name    string   `json:"table"`
	Columns []Column `json:"columns"`
	// Parents are tables that rows of this one may refer to.
	Parents []string `json:"-"`
}

// Transient reports whether the data of a table is useless in another database or later: the outbox and its
// counters, the servers that are alive, and responses for idempotency keys.
func Transient(table string) bool {
	return slices.Contains([]string{"changes", "serials", "server_replicas", "replies", "goose_db_version"}, table)
}
