package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
)

//go:embed dist/index.html dist/assets
var dist embed.FS

const pageFile = "index.html"

// file is one file of the bundle, ready to be sent.
type file struct {
	plain, packed []byte
	contentType   string
	cacheControl  string
	etag          string
}

// load reads the bundle. The files are part of the binary, so reading them cannot fail.
func load() map[string]*file {
	files := map[string]*file{}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "dist/")
		files[name] = newFile(name, content)
		return nil
	})
	if err != nil {
		panic("console: reading embedded files: " + err.Error())
	}
	return files
}

// hashed matches names that change with their content.
var hashed = regexp.MustCompile(`-[A-Z0-9]{8}\.(js|css)$`)

func newFile(name string, content []byte) *file {
	sum := sha256.Sum256(content)
	f := &file{
		plain:       content,
		packed:      pack(content),
		contentType: contentTypes[path.Ext(name)],
		// The page refers to the hashed files, so it must be revalidated each time.
		cacheControl: "no-cache",
		etag:         hex.EncodeToString(sum[:16]),
	}
	if hashed.MatchString(name) {
		f.cacheControl = "public, max-age=31536000, immutable"
	}
	return f
}

// contentTypes are fixed, because the result of the mime package depends on the machine.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
}

func pack(content []byte) []byte {
	var out bytes.Buffer
	// Neither the level nor a buffer can make these calls fail.
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, _ = w.Write(content)
	_ = w.Close()
	return out.Bytes()
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	body, etag := f.plain, `"`+f.etag+`"`
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		body, etag = f.packed, `"`+f.etag+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Cache-Control", f.cacheControl)
	h.Set("ETag", etag)
	if strings.Contains(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // a disconnected client needs no response
}

// acceptsGzip parses an Accept-Encoding header; "gzip;q=0" refuses.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, quality, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		q, found := strings.CutPrefix(strings.ReplaceAll(quality, " ", ""), "q=")
		value, err := strconv.ParseFloat(q, 64)
		return !found || (err == nil && value > 0)
	}
	return false
}
