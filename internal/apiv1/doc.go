// Package apiv1 is the JSON of the REST door, /api/v1: what its server writes and its clients
// read. It holds shapes only, with no behaviour beyond reading them for a person, and imports the
// standard library only, so that a client needs nothing of the server.
//
// Times are RFC 3339 and absent when they are zero. Adding a field is fine; renaming, removing or
// changing the meaning of one is not.
package apiv1
