package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, method, path string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for key, values := range header {
		r.Header[key] = values
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestHandlerAnswersPaths(t *testing.T) {
	t.Parallel()
	html := http.Header{"Accept": {"text/html,application/xhtml+xml,*/*;q=0.8"}}
	tests := map[string]struct {
		reason, method, path string
		header               http.Header
		status               int
		contentType          string
	}{
		"root":              {"the page is at the root", "GET", "/", nil, 200, "text/html; charset=utf-8"},
		"client route":      {"a shared link must open", "GET", "/deployments/web", html, 200, "text/html; charset=utf-8"},
		"head":              {"HEAD answers like GET", "HEAD", "/", nil, 200, "text/html; charset=utf-8"},
		"route as a fetch":  {"a program that asks for JSON must not get HTML", "GET", "/deployments/web", http.Header{"Accept": {"application/json"}}, 404, "text/plain; charset=utf-8"},
		"unknown asset":     {"an old page must not get HTML as a script", "GET", "/assets/app-AAAAAAAA.js", html, 404, "text/plain; charset=utf-8"},
		"api path":          {"a wrong API path is an error, even in a browser", "GET", "/api/v1/nothing", html, 404, "text/plain; charset=utf-8"},
		"api root":          {"the same without a slash", "GET", "/api", html, 404, "text/plain; charset=utf-8"},
		"path with dots":    {"only embedded files are served", "GET", "/assets/../../console.go", nil, 404, "text/plain; charset=utf-8"},
		"licences":          {"the licenses of bundled code are readable", "GET", "/assets/licenses.txt", nil, 200, "text/plain; charset=utf-8"},
		"writing the page":  {"POST is not allowed", "POST", "/", html, 405, "text/plain; charset=utf-8"},
		"deleting an asset": {"nor deleted", "DELETE", "/assets/licenses.txt", html, 405, "text/plain; charset=utf-8"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := get(t, tt.method, tt.path, tt.header)
			if res.StatusCode != tt.status {
				t.Errorf("%s: got status %d, want %d", tt.reason, res.StatusCode, tt.status)
			}
			if got := res.Header.Get("Content-Type"); got != tt.contentType {
				t.Errorf("%s: got content type %q, want %q", tt.reason, got, tt.contentType)
			}
			checkHeaders(t, res.Header)
		})
	}
}

// checkHeaders checks that every response, including errors, has the same security headers.
func checkHeaders(t *testing.T, h http.Header) {
	t.Helper()
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
	}
	for key, value := range want {
		if got := h.Get(key); got != value {
			t.Errorf("header %s: got %q, want %q", key, got, value)
		}
	}
}

func TestPageNamesOnlyFilesThatExistAndCachesThemForever(t *testing.T) {
	t.Parallel()
	page, err := io.ReadAll(get(t, "GET", "/", nil).Body)
	if err != nil {
		t.Fatal(err)
	}
	assets := regexp.MustCompile(`/assets/[^"]+`).FindAllString(string(page), -1)
	if len(assets) != 2 {
		t.Fatalf("got assets %q in the page, want a script and a style sheet", assets)
	}
	for _, path := range assets {
		res := get(t, "GET", path, nil)
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: got status %d, want 200", path, res.StatusCode)
		}
		if got := res.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s: got Cache-Control %q, want immutable", path, got)
		}
	}
	if got := get(t, "GET", "/", nil).Header.Get("Cache-Control"); got != "no-cache" {
		t.Errorf("page: got Cache-Control %q, want no-cache: it names the hashed files", got)
	}
}

func TestFilesAreCompressedWhenAskedFor(t *testing.T) {
	t.Parallel()
	plain, err := io.ReadAll(get(t, "GET", "/", nil).Body)
	if err != nil {
		t.Fatal(err)
	}
	res := get(t, "GET", "/", http.Header{"Accept-Encoding": {"br, gzip"}})
	if got := res.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("got encoding %q, want gzip", got)
	}
	unpacker, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(unpacker)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(plain, unpacked) {
		t.Error("the compressed page is not the plain page")
	}
	refusing := get(t, "GET", "/", http.Header{"Accept-Encoding": {"gzip;q=0, identity"}})
	if got := refusing.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("got encoding %q for a client that refuses gzip", got)
	}
}

func TestPageIsNotSentTwice(t *testing.T) {
	t.Parallel()
	first := get(t, "GET", "/", nil)
	second := get(t, "GET", "/", http.Header{"If-None-Match": {first.Header.Get("ETag")}})
	if second.StatusCode != http.StatusNotModified {
		t.Errorf("got status %d for a cached page, want 304", second.StatusCode)
	}
	other := get(t, "GET", "/", http.Header{"If-None-Match": {`"something-else"`}})
	if other.StatusCode != http.StatusOK {
		t.Errorf("got status %d for a page that is not cached, want 200", other.StatusCode)
	}
}
