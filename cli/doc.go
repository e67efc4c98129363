// Package cli is the kedge program: commands over the REST API of a server. It decides nothing that
// the server decides, and prints for people on a terminal, plainly everywhere else.
//
// Exit codes:
//
//	0    done; for status: nothing has failed, and with --watch everything has arrived
//	1    the command could not be carried out: not logged in, refused, unreachable
//	2    the command was used wrongly: unknown flag, missing argument, a value that the server refuses
//	3    a deployment has failed somewhere
//	4    --timeout passed before everything had arrived
//	130  interrupted
package cli
