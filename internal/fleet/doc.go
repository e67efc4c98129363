// Package fleet contains the domain types of Kedge and the rules that apply to them, independent of storage,
// transport, and presentation. It imports only the standard library, so that every package may import it.
//
// It does not access a database, a network, or a cluster. Values are passed by copy and are not safe for
// concurrent mutation.
package fleet
