// Package apiv1 contains the JSON types of the REST API, /api/v1. It has types only, with no behavior beyond
// formatting for people, and imports only the standard library, so that a client does not depend on the server.
//
// Times are in RFC 3339 and absent when zero. You may add a field. Do not rename a field, remove one, or change
// its meaning.
package apiv1
