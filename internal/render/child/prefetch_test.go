package child

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Questions that are asked together need one flush, and each reply belongs to its question.
func TestQuestionsAskedAtOnceAreOneWrite(t *testing.T) {
	t.Parallel()
	writes := &countedWrites{}
	frames := make(chan frame, 8)
	r := &remoteFiles{frames: frames, out: bufio.NewWriterSize(writes, 64<<10)}
	writes.each = func(kind byte, payload []byte) {
		body := append([]byte{replyOK}, payload[1:]...)
		if string(payload[1:]) == "missing" {
			body = []byte{replyNotExist}
		}
		frames <- frame{frameReply, body}
	}
	r.Prefetch(t.Context(), treefs.Questions{Read: []string{"a", "b", "missing"}})
	if writes.count != 1 {
		t.Errorf("three questions took %d writes", writes.count)
	}
	for _, name := range []string{"b", "a"} {
		if got, err := r.Read(t.Context(), name); err != nil || string(got) != name {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if _, err := r.Read(t.Context(), "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if writes.count != 1 || len(r.early) != 0 {
		t.Errorf("%d writes, and %d replies are kept", writes.count, len(r.early))
	}
	if got, err := r.Read(t.Context(), "a"); err != nil || string(got) != "a" || writes.count != 2 {
		t.Errorf("asked again: %q, %v, %d writes", got, err, writes.count)
	}
}

// More questions than a pipe can hold are asked in batches, so that neither side blocks the other forever.
func TestManyQuestionsDoNotFillThePipes(t *testing.T) {
	t.Parallel()
	writes := &countedWrites{}
	frames := make(chan frame, 100_000)
	r := &remoteFiles{frames: frames, out: bufio.NewWriterSize(writes, 64<<10)}
	writes.each = func(_ byte, payload []byte) { frames <- frame{frameReply, append([]byte{replyOK}, payload[1:]...)} }
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("some/folder/file-%d.yaml", i))
	}
	r.Prefetch(t.Context(), treefs.Questions{Read: names})
	if writes.largest > maxBatch || len(r.early) != len(names) {
		t.Errorf("%d replies, and %d bytes in one write", len(r.early), writes.largest)
	}
}

// countedWrites is the parent: it counts writes and reads the frames in them.
type countedWrites struct {
	count, largest int
	each           func(kind byte, payload []byte)
}

func (w *countedWrites) Write(b []byte) (int, error) {
	w.count++
	w.largest = max(w.largest, len(b))
	for in := bytes.NewReader(b); ; {
		kind, payload, err := readFrame(in, 1<<20)
		if errors.Is(err, io.EOF) {
			return len(b), nil
		}
		if err != nil {
			return 0, err
		}
		w.each(kind, payload)
	}
}
