package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/plaintext"
)

// What an agent says comes in part from its cluster, where anything may stand. A frame that the
// server refuses ends the connection, again and again: so everything is made fit before it is
// sent, and what cannot be is left out.

// clean makes text of a peer fit for logs, databases and terminals.
func clean(text string, limit int) string { return plaintext.Text(text, limit) }

// cut shortens text to at most limit bytes, between runes, and says so.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return prefix(text, limit-len(cutMark)) + cutMark
}

const cutMark = plaintext.Ellipsis

// prefix is as much of text as fits into limit bytes, between runes.
func prefix(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// cleanWord makes a word that checkWord takes.
func cleanWord(word string) string {
	return cut(strings.Map(printable, strings.ToValidUTF8(word, "�")), maxWord)
}

func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return '�'
	}
	return r
}

// cleanRef makes a part of a reference that parseRef takes. What has to be changed for it gets a
// hash of what it was: two objects must not become one.
func cleanRef(word string, required bool) string {
	fit := strings.Map(printable, strings.ToValidUTF8(word, "�"))
	if fit == word && len(word) <= maxWord && (word != "" || !required) {
		return word
	}
	sum := sha256.Sum256([]byte(word))
	mark := cutMark + hex.EncodeToString(sum[:6])
	return prefix(fit, maxWord-len(mark)) + mark
}

func cleanDigest(digest string) string {
	if checkDigest(digest) != nil {
		return ""
	}
	return digest
}

// CheckTarget says whether a target can be spoken of.
func CheckTarget(id fleet.TargetID) error { return checkID("target", string(id)) }

// timestamp is nothing for a time that was not set or that the wire has no form for.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	if ts := timestamppb.New(t); ts.IsValid() {
		return ts
	}
	return nil
}
