// Package control is the only room of the server that decides. Every door (REST, gateway, …) calls
// its use-cases; every write passes here and is one store transaction.
//
// Two things live in it. [Service] holds the use-cases: who may do what, what a change means for
// which targets, what a user sees. [Service.Work] drives the sources: one worker per repository that
// is woken by a push, by a change of a deployment or, as a backstop, by its poll interval, and that
// turns new commits into bundles and new desired states.
//
// It never talks to a cluster, never speaks HTTP, and knows nothing of connections.
package control
