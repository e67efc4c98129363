// Package control contains the use cases and views of the server. Every API (REST, gateway, …) calls it; every
// write of a caller goes through it and is one store transaction.
//
// [Service] has the use cases: authorization, edits, and what users see. [Service.Work] runs the background
// work: one worker per repository, which wakes up for a push, for a change of a deployment or, as a fallback,
// after its poll interval, and turns new commits into bundles and desired states.
//
// It never connects to a cluster, does not use HTTP, and does not know connections.
package control
