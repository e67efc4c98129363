// Package fleet holds the nouns of Kedge and the rules that are true of them whatever stores,
// carries or shows them. It imports the standard library only, so that every room may know it.
//
// Nothing here talks to a database, a network or a cluster, and nothing here is safe for
// concurrent mutation: values are passed by copy and owned by whoever holds them.
package fleet
