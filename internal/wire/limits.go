package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/plaintext"
)

// Bounds of what travels. A peer that exceeds one is refused, never served partly.
const (
	// MaxFrame bounds one encoded frame, in both directions.
	MaxFrame = 4 << 20
	// MaxInlineBundle is the size up to which a compressed bundle travels inside Desired; larger
	// ones are fetched, so that they do not hold up the frames behind them.
	MaxInlineBundle = 32 << 10
	// MaxMissedBundle is that size for what an agent has missed while it was away: it waits for
	// nothing else, and a line that was bad enough to break takes long to ask once more.
	MaxMissedBundle = 128 << 10
	// HeldInHello is how many targets an agent lists in Hello, before it is asked to.
	HeldInHello = 32
	// BundleChunk is the size of one FetchBundle response.
	BundleChunk = 64 << 10
	// MaxBundle bounds a compressed bundle.
	MaxBundle = 32 << 20
	// MaxBundleContent bounds a bundle once it is unpacked. Objects take several times of that in
	// memory, and an agent has half a gigabyte.
	MaxBundleContent = 48 << 20
	// MaxTargets bounds Held.
	MaxTargets = 20_000
	// MaxObjects bounds the objects of one Status frame. A longer list is sent as a full Status
	// and further ones with what is left.
	MaxObjects = 2_000
	// StatusWindow is how many Status frames an agent has on the way that were not confirmed with
	// StatusStored. Beyond it a newer status of a target replaces the one that waits at the agent:
	// what is written is never older than the window is long.
	StatusWindow = 256
	// MaxEvents bounds one Events frame.
	MaxEvents = 256

	maxID      = 63
	maxWord    = 253
	maxMessage = 1 << 10
	maxDigest  = 128
	maxToken   = 1 << 10
)

// ErrFrame says that a frame breaks the protocol.
var ErrFrame = errors.New("malformed frame")

func frameError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFrame, fmt.Sprintf(format, args...))
}

// checkID accepts what fleet.New…ID makes, and a little more for what later versions may make.
func checkID(what, id string) error {
	if id == "" || len(id) > maxID {
		return frameError("%s has %d characters, not 1 to %d", what, len(id), maxID)
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return frameError("%s %q holds something else than a-z, 0-9 and -", what, id)
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
		return frameError("%s %q holds control characters", what, word)
	}
	return nil
}
