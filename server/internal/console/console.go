// Package console serves the web console: a user interface for the public REST and SSE API, without its own
// backend. The page is Preact in TSX (web/), bundled by go generate without Node (tools/console) into dist/,
// which is committed and embedded here.
//
// The package must not read data, know users, or make decisions: the user enters a token, and the page sends it
// to the API. The handler is safe for concurrent use and keeps the whole bundle in memory, compressed once.
package console

import (
	"net/http"
	"strings"
)

//go:generate go -C ../../../tools/console run . -web ../../server/internal/console/web -out ../../server/internal/console/dist

// policy allows the page to load its own script and style sheet and to call its own origin, and nothing else:
// no inline code, no other host, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page at /, its files below /assets/, and the page again for every other path that a
// browser navigates to, because the page routes by path. Paths below /api/ never return the page, so that a
// client with a wrong path gets a 404 and not HTML.
func Handler() http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are served here", http.StatusMethodNotAllowed)
			return
		}
		file, ok := files[fileFor(r)]
		if !ok {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		file.serve(w, r)
	})
}

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// fileFor returns the name of the embedded file for a request, or "".
func fileFor(r *http.Request) string {
	path := r.URL.Path
	switch {
	case path == "/":
		return pageFile
	case strings.HasPrefix(path, "/assets/"):
		return strings.TrimPrefix(path, "/")
	case path == "/api" || strings.HasPrefix(path, "/api/"):
		return ""
	case strings.Contains(r.Header.Get("Accept"), "text/html"):
		return pageFile
	default:
		return ""
	}
}
