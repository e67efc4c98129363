// Package wire is what both ends of the agent protocol agree on beyond the generated messages in
// agentv1: size limits, hashes over state, and the conversion between messages and the nouns of
// fleet. It opens no connection and runs no loop.
//
// Every Parse function takes a message from the other side and trusts nothing in it. Identifiers
// and sizes out of bounds are refused with [ErrFrame]; words that this build does not know (a
// newer peer may have more) become the word that claims least; text is cut to its limit and loses
// its control characters, since it ends up in terminals.
package wire
