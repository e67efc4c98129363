package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// ErrCorrupt means that bytes are not the canonical form of a set, or do not match the digest. The bytes were
// damaged or forged in transit; it is not a mistake of a user.
var ErrCorrupt = errors.New("the bundle is damaged")

// ErrTooLarge means that a set exceeds the limit of its reader.
var ErrTooLarge = errors.New("the bundle is too large")

// Encode returns the canonical form: one JSON object per line, in order.
func (s *Set) Encode() []byte {
	var buf bytes.Buffer
	for _, o := range s.objects {
		buf.Write(o.canonical())
		buf.WriteByte('\n')
	}
	return buf.Bytes()
}

// Digest identifies the content of the set: "sha256:" and the hex SHA-256 of Encode.
func (s *Set) Digest() string { return digestOf(s.Encode()) }

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Decode decodes the output of Encode. It accepts only the canonical form, so that a decoded set has the digest
// of its bytes, and fails with ErrCorrupt for everything else.
func Decode(data []byte) (*Set, error) {
	set := &Set{}
	for n := 1; len(data) > 0; n++ {
		line, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok {
			return nil, fmt.Errorf("decoding object %d: %w: it does not end", n, ErrCorrupt)
		}
		object, err := decodeObject(line)
		if err != nil {
			return nil, fmt.Errorf("decoding object %d: %w: %w", n, ErrCorrupt, err)
		}
		if n > 1 && compareRefs(set.objects[n-2].Ref, object.Ref) >= 0 {
			return nil, fmt.Errorf("decoding object %d: %w: out of order", n, ErrCorrupt)
		}
		set.objects = append(set.objects, object)
		data = rest
	}
	return set, nil
}

func decodeObject(line []byte) (Object, error) {
	value, err := decodeCanonical(line)
	if err != nil {
		return Object{}, err
	}
	content, ok := value.(map[string]any)
	if !ok {
		return Object{}, errors.New("not an object")
	}
	ref, err := identify(content)
	if err != nil {
		return Object{}, err
	}
	object := Object{Ref: ref, Content: content}
	if !bytes.Equal(object.canonical(), line) {
		return Object{}, errors.New("not in canonical form")
	}
	return object, nil
}

// encoder is created once: it is large, stateless in EncodeAll, and safe for concurrent use.
var encoder = newEncoder()

func newEncoder() *zstd.Encoder {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		// It exists as long as the program, with a buffer of its window size. A small window is sufficient
		// because repetitions in a bundle are close together.
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // only for contradictory options
	}
	// The first use creates a channel. If a testing/synctest bubble were the first, no other goroutine could
	// use the encoder.
	enc.EncodeAll(nil, nil)
	return enc
}

// Pack returns the set in the form that is stored and sent: its digest, its compressed canonical form, and the
// uncompressed size.
func (s *Set) Pack() (digest string, compressed []byte, size int64) {
	data := s.Encode()
	return digestOf(data), encoder.EncodeAll(data, make([]byte, 0, len(data)/8+64)), int64(len(data))
}

// minDecoderMemory is sufficient for the window of every level that Pack may use.
const minDecoderMemory = 8 << 20

// Unpack decodes the output of Pack. It fails with ErrCorrupt if the bytes do not match digest, and with
// ErrTooLarge if they decompress to more than maxSize.
func Unpack(digest string, compressed []byte, maxSize int64) (*Set, error) {
	if maxSize < 1 {
		return nil, fmt.Errorf("unpacking %s: the largest size must be positive, not %d", digest, maxSize)
	}
	// The decoder counts its window against its limit, even for content that is smaller.
	limit := uint64(max(maxSize, minDecoderMemory))
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(limit))
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", digest, err)
	}
	defer dec.Close()
	data, err := dec.DecodeAll(compressed, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || int64(len(data)) > maxSize {
		return nil, fmt.Errorf("unpacking %s: %w: larger than %d bytes", digest, ErrTooLarge, maxSize)
	}
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w: %w", digest, ErrCorrupt, err)
	}
	if got := digestOf(data); got != digest {
		return nil, fmt.Errorf("unpacking %s: %w: its digest is %s", digest, ErrCorrupt, got)
	}
	return Decode(data)
}
