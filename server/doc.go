// Package server is the composition root of kedge-server: it creates the components, starts them in stages, and
// stops them in reverse order. It makes no decisions.
//
//	store, git ─▶ control ─▶ gateway, restapi, console ─▶ listener
package server
