package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	formatName    = "kedge-backup"
	formatVersion = 1
)

// Manifest is the head of an archive.
type Manifest struct {
	Format   string    `json:"format"`
	Version  int       `json:"version"` // version of the format
	Schema   int64     `json:"schema"`  // version of the database schema
	Database string    `json:"database"`
	Kedge    string    `json:"kedge"` // version of the program
	TakenAt  time.Time `json:"takenAt"`
}

type trailer struct {
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"`
}

// Writer writes an archive. It is not safe for concurrent use.
type Writer struct {
	zstd    *zstd.Encoder
	buf     *bufio.Writer
	hash    hash.Hash
	columns []Column
	rows    int64
}

// NewWriter starts an archive. It fills in Format and Version.
func NewWriter(w io.Writer, m Manifest) (*Writer, error) {
	enc, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	out := &Writer{zstd: enc, buf: bufio.NewWriterSize(enc, 64<<10), hash: sha256.New()}
	m.Format, m.Version, m.TakenAt = formatName, formatVersion, m.TakenAt.UTC()
	return out, out.line(m)
}

// Table starts a table: the following rows belong to it.
func (w *Writer) Table(t Table) error {
	w.columns = t.Columns
	return w.line(t)
}

// Row writes one row: nil, int64, bool, string or []byte for each column.
func (w *Writer) Row(values []any) error {
	if len(values) != len(w.columns) {
		return fmt.Errorf("a row has %d values for %d columns", len(values), len(w.columns))
	}
	w.rows++
	return w.line(values) // encoding/json writes bytes as base64
}

// Close completes the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	end, err := json.Marshal(trailer{Rows: w.rows, SHA256: hex.EncodeToString(w.hash.Sum(nil))})
	if err == nil {
		_, err = w.buf.Write(append(end, '\n'))
	}
	return errors.Join(err, w.buf.Flush(), w.zstd.Close())
}

func (w *Writer) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	w.hash.Write(text)
	_, err = w.buf.Write(text)
	return err
}
