// Package server is the composition root of kedge-server: it builds the components, starts them in
// stages and stops them in reverse. It decides nothing.
//
//	store, git ─▶ control ─▶ gateway, restapi, console ─▶ listener
package server
