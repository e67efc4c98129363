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

// An agent reports texts from its cluster, which may contain anything. A frame that the server refuses would end every
// connection. Therefore the functions in this file make values valid before they are sent.

// clean returns text that is valid for logs, databases and terminals.
func clean(text string, limit int) string { return plaintext.Text(text, limit) }

// cut truncates text to at most limit bytes, at the end of a rune, and appends a mark.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return prefix(text, limit-len(cutMark)) + cutMark
}

const cutMark = plaintext.Ellipsis

// prefix truncates text to at most limit bytes, at the end of a rune.
func prefix(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// cleanWord returns a word that checkWord accepts.
func cleanWord(word string) string {
	return cut(strings.Map(printable, strings.ToValidUTF8(word, "�")), maxWord)
}

func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return '�'
	}
	return r
}

// cleanRef returns a part of a reference that parseRef accepts. If it has to change the word, it appends a hash of it, so
// that different objects stay different.
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

// CheckTarget returns an error when a target id is not valid.
func CheckTarget(id fleet.TargetID) error { return checkID("target", string(id)) }

// timestamp returns nil for a time that is zero or cannot be encoded.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	if ts := timestamppb.New(t); ts.IsValid() {
		return ts
	}
	return nil
}
