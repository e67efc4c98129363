// Package archive is the portable form of a server's database: what kedge-server backup writes and
// restore reads. It knows tables, columns and four kinds of value, and neither of the databases, so
// that what was taken from one can be put into the other.
//
// An archive is lines of JSON in one zstd stream, in this order:
//
//	the Manifest
//	per table, parents before children:
//	  {"table": …, "columns": [{"name": …, "kind": …}, …]}
//	  one array per row
//	{"rows": how many in all, "sha256": of every line before this one}
//
// Bytes are base64, times are what the columns hold. Secrets are in it as they are in the database:
// sealed, or hashed. What is in Git is not.
//
// What only matters while a server runs stays out: see Transient.
package archive

import "slices"

// Kind is what a column holds.
type Kind string

// The kinds of value. A bool and an int of 0 or 1 are the same to an archive.
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

// Table is one table with the columns that are copied: those that the database does not compute.
type Table struct {
	Name    string   `json:"table"`
	Columns []Column `json:"columns"`
	// Parents are tables that rows of this one may refer to.
	Parents []string `json:"-"`
}

// Transient reports whether a table is of no use in another place or at another time: the outbox and
// what is counted for it, the servers that are alive, and answers to requests under way.
func Transient(table string) bool {
	return slices.Contains([]string{"changes", "serials", "server_replicas", "replies", "goose_db_version"}, table)
}
