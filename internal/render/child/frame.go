package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// frame types, named after their content.
const (
	frameHello  = 'h' // child: JSON of hello
	frameJob    = 'j' // parent: JSON of jobMessage
	frameQuery  = 'q' // child: an op, then a path
	frameReply  = 'r' // parent: see reply.go
	frameObject = 'o' // child: the length of the source, the source, then JSON
	frameEnd    = 'e' // child: JSON of endMessage
)

// frameOverhead is the size of a question frame without the path.
const frameOverhead = 6

// errFrame means that the input is not a frame, or exceeds the maximum size.
var errFrame = errors.New("not a frame of this protocol")

// frameTooBig has the size of a frame that is too large.
type frameTooBig struct {
	kind byte
	size int64
}

func (e *frameTooBig) Error() string {
	return fmt.Sprintf("a frame %q of %d bytes is too large", e.kind, e.size)
}

// writeFrame writes a frame of the parts with one write.
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

// readFrame reads a frame whose payload has at most limit bytes. It allocates memory as bytes arrive, not for
// the announced length.
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

// noEOF turns an EOF in the middle of a frame into an error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
