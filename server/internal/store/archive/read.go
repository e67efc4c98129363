package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"
)

// ErrDamaged means that the input is not a complete archive.
var ErrDamaged = errors.New("the archive is damaged or incomplete")

// maxLine limits one row: the largest value is a bundle.
const maxLine = 256 << 20

// Reader reads an archive. It is not safe for concurrent use.
type Reader struct {
	Manifest Manifest

	zstd    *zstd.Decoder
	buf     *bufio.Reader
	hash    hash.Hash
	columns []Column
	peeked  []byte
	rows    int64
}

// NewReader reads the manifest of an archive. The caller closes the reader.
func NewReader(r io.Reader) (*Reader, error) {
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, err
	}
	out := &Reader{zstd: dec, buf: bufio.NewReaderSize(dec, 64<<10), hash: sha256.New()}
	if err := out.readManifest(); err != nil {
		dec.Close()
		return nil, err
	}
	return out, nil
}

// Close releases the memory of the reader.
func (r *Reader) Close() { r.zstd.Close() }

func (r *Reader) readManifest() error {
	text, err := r.line()
	if err != nil || json.Unmarshal(text, &r.Manifest) != nil || r.Manifest.Format != formatName {
		return errors.New("this is not a backup of kedge-server")
	}
	if r.Manifest.Version != formatVersion {
		return fmt.Errorf("the backup has format %d, but this program reads format %d", r.Manifest.Version, formatVersion)
	}
	r.hash.Write(text)
	return nil
}

// NextTable moves to the next table; false is the end of a complete archive.
func (r *Reader) NextTable() (Table, bool, error) {
	text, err := r.next()
	if err != nil {
		return Table{}, false, err
	}
	var t Table
	if json.Unmarshal(text, &t) == nil && t.Name != "" {
		r.hash.Write(text)
		r.columns = t.Columns
		return t, true, nil
	}
	return Table{}, false, r.end(text)
}

func (r *Reader) end(text []byte) error {
	var t trailer
	if json.Unmarshal(text, &t) != nil || t.SHA256 != hex.EncodeToString(r.hash.Sum(nil)) || t.Rows != r.rows {
		return ErrDamaged
	}
	if _, err := r.buf.ReadByte(); !errors.Is(err, io.EOF) {
		return ErrDamaged
	}
	return nil
}

// NextRow returns the next row of the table: nil, int64, bool, string or []byte for each column; false is
// the end of the table.
func (r *Reader) NextRow() ([]any, bool, error) {
	text, err := r.next()
	if err != nil {
		return nil, false, err
	}
	if text[0] != '[' {
		r.peeked = text
		return nil, false, nil
	}
	r.hash.Write(text)
	r.rows++
	values, err := parseRow(text, r.columns)
	return values, err == nil, err
}

func parseRow(text []byte, columns []Column) ([]any, error) {
	var raw []any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&raw); err != nil || len(raw) != len(columns) {
		return nil, ErrDamaged
	}
	for i, value := range raw {
		var err error
		if raw[i], err = parseValue(value, columns[i].Kind); err != nil {
			return nil, fmt.Errorf("column %q: %w", columns[i].Name, err)
		}
	}
	return raw, nil
}

func parseValue(value any, kind Kind) (any, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case bool:
		if kind == Bool {
			return v, nil
		}
	case json.Number:
		if n, err := v.Int64(); kind == Int && err == nil {
			return n, nil
		}
	case string:
		switch kind {
		case Text:
			return v, nil
		case Bytes:
			if content, err := base64.StdEncoding.DecodeString(v); err == nil {
				return content, nil
			}
		}
	}
	return nil, ErrDamaged
}

func (r *Reader) next() ([]byte, error) {
	if text := r.peeked; text != nil {
		r.peeked = nil
		return text, nil
	}
	return r.line()
}

// line returns the next line with its end.
func (r *Reader) line() ([]byte, error) {
	var out []byte
	for {
		part, err := r.buf.ReadSlice('\n')
		out = append(out, part...)
		switch {
		case err == nil:
			return out, nil
		case !errors.Is(err, bufio.ErrBufferFull), len(out) > maxLine:
			return nil, ErrDamaged
		}
	}
}
