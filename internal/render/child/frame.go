package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// frame types, named after what they carry.
const (
	frameHello  = 'h' // child: JSON of hello
	frameJob    = 'j' // parent: JSON of jobMessage
	frameQuery  = 'q' // child: an op, then a path
	frameReply  = 'r' // parent: see reply.go
	frameObject = 'o' // child: the length of the source, the source, then JSON
	frameEnd    = 'e' // child: JSON of endMessage
)

// frameOverhead is what a frame of a question has beside the path.
const frameOverhead = 6

// errFrame says that what came is not a frame, or a larger one than is allowed.
var errFrame = errors.New("not a frame of this protocol")

// frameTooBig says how large a frame would have been.
type frameTooBig struct {
	kind byte
	size int64
}

func (e *frameTooBig) Error() string {
	return fmt.Sprintf("a frame %q of %d bytes is too large", e.kind, e.size)
}

// writeFrame writes a frame of the parts in one piece.
func writeFrame(w io.Writer, kind byte, parts ...[]byte) error {
	size := 1
	for _, p := range parts {
		size += len(p)
	}
	buf := make([]byte, 0, 4+size)
	buf = binary.BigEndian.AppendUint32(buf, uint32(size))
	buf = append(buf, kind)
	for _, p := range parts {
		buf = append(buf, p...)
	}
	_, err := w.Write(buf)
	return err
}

// readFrame reads a frame whose payload has at most limit bytes. It makes room as bytes arrive, not for
// what a length promises.
func readFrame(r io.Reader, limit int64) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:4])) - 1
	kind = head[4]
	if size < 0 {
		return 0, nil, errFrame
	}
	if size > limit {
		return 0, nil, &frameTooBig{kind: kind, size: size}
	}
	payload, err = readAll(r, size)
	return kind, payload, err
}

// readAll reads exactly size bytes.
func readAll(r io.Reader, size int64) ([]byte, error) {
	const step = 1 << 20
	out := make([]byte, 0, min(size, step))
	for int64(len(out)) < size {
		next := min(size-int64(len(out)), step)
		start := len(out)
		out = append(out, make([]byte, next)...)
		if _, err := io.ReadFull(r, out[start:]); err != nil {
			return nil, fmt.Errorf("reading a frame: %w", noEOF(err))
		}
	}
	return out, nil
}

// noEOF is for the middle of something, where an end is too early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
