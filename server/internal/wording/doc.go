// Package wording joins the parts of messages that users read: counted nouns and reasons behind a colon.
//
// Nothing may parse its results: state belongs into fields. It holds no state, so it is safe for concurrent use.
package wording
