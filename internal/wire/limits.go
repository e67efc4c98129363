package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/plaintext"
)

// Limits of the protocol. A message that exceeds one is refused completely.
const (
	// MaxFrame bounds one encoded frame, in both directions.
	MaxFrame = 4 << 20
	// MaxInlineBundle is the maximal size of a compressed bundle inside Desired. Agents fetch larger ones, so that they do
	// not delay other frames.
	MaxInlineBundle = 32 << 10
	// MaxMissedBundle is the same for states that an agent has missed while it was disconnected: there are no other frames
	// to delay, and another request would take long on a bad connection.
	MaxMissedBundle = 128 << 10
	// MaxStatesInHello is the maximal number of targets that an agent lists in Hello.
	MaxStatesInHello = 32
	// BundleChunk is the size of one FetchBundle response.
	BundleChunk = 64 << 10
	// MaxBundle bounds a compressed bundle.
	MaxBundle = 32 << 20
	// MaxBundleContent bounds an unpacked bundle. Its objects need several times this size in memory, and the memory limit
	// of an agent is 512 MiB.
	MaxBundleContent = 48 << 20
	// MaxTargets bounds the targets of an agent that TargetStates lists.
	MaxTargets = 20_000
	// MaxObjects bounds the objects of one Status frame. A longer list is split into a full Status and further ones.
	MaxObjects = 2_000
	// StatusWindow is the maximal number of Status frames in flight that the server has not confirmed with StatusStored.
	// When the window is full, the agent keeps only the newest status of each target.
	StatusWindow = 256
	// MaxEvents bounds one Events frame.
	MaxEvents = 256

	maxID      = 63
	maxWord    = 253
	maxMessage = 1 << 10
	maxDigest  = 128
	maxToken   = 1 << 10
)

// ErrFrame means that a frame violates the protocol.
var ErrFrame = errors.New("malformed frame")

func frameError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFrame, fmt.Sprintf(format, args...))
}

// checkID accepts the results of fleet.New…ID, and some more for later versions.
func checkID(what, id string) error {
	if id == "" || len(id) > maxID {
		return frameError("%s has %d characters, not 1 to %d", what, len(id), maxID)
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return frameError("%s %q contains characters other than a-z, 0-9 and -", what, id)
		}
	}
	return nil
}

func checkDigest(digest string) error {
	if digest == "" {
		return nil
	}
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(digest) > maxDigest || len(hex) != 64 {
		return frameError("digest %q is not sha256:<64 hex digits>", cut(digest, maxDigest))
	}
	for _, c := range []byte(hex) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return frameError("digest %q is not sha256:<64 hex digits>", digest)
		}
	}
	return nil
}

func checkWord(what, word string) error {
	if len(word) > maxWord {
		return frameError("%s has %d bytes, more than %d", what, len(word), maxWord)
	}
	if !plaintext.IsPlain(word) || strings.ContainsAny(word, "\n\t") {
		return frameError("%s %q contains control characters", what, word)
	}
	return nil
}
