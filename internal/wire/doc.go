// Package wire has the common part of both ends of the agent protocol, in addition to the generated messages in agentv1:
// size limits, hashes over states, and the conversion between messages and the types of package fleet. It opens no
// connection and runs no loop.
//
// The Parse functions validate messages from the other side. Identifiers and sizes that are out of bounds are refused with
// [ErrFrame]. Unknown enum values, which a newer peer may send, become the value with the weakest meaning. Text is truncated
// to its limit, and its control characters are removed because terminals may show it.
package wire
