package relay

import (
	"net/http"
	"slices"
	"strings"
)

// Headers that pass through a tunnel. All others are dropped: credentials and cookies of the caller, and whatever a proxy or
// a later version of net/http adds. The agent checks the requests again.
var (
	requestHeaders = []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Content-Encoding", "Content-Type", "Expect", "If-Match", "If-Modified-Since", "If-None-Match",
		"If-Unmodified-Since", "Range", "User-Agent", "Kubectl-Command", "Kubectl-Session", "Traceparent", "Tracestate", "X-Stream-Protocol-Version",
	}
	responseHeaders = []string{
		"Accept-Ranges", "Audit-Id", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Range", "Content-Type",
		"Date", "Etag", "Expires", "Last-Modified", "Retry-After", "Trailer", "Vary", "Warning", "X-Content-Type-Options",
		"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "X-Stream-Protocol-Version",
	}
	upgradeHeaders = []string{
		"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version",
	}
	// upgrades are the protocols of the Kubernetes API.
	upgrades = []string{"websocket", "spdy/3.1"}
)

// keep removes all headers but the listed ones.
func keep(h http.Header, lists ...[]string) {
	for name := range h {
		if !slices.ContainsFunc(lists, func(list []string) bool { return slices.Contains(list, http.CanonicalHeaderKey(name)) }) {
			delete(h, name)
		}
	}
}

// upgradeOf returns the protocol that a request wants to change to, in lower case, or "".
func upgradeOf(r *http.Request) string {
	for _, value := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return strings.ToLower(r.Header.Get("Upgrade"))
			}
		}
	}
	return ""
}

// impersonates reports whether a caller wants to be somebody else.
func impersonates(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			return true
		}
	}
	return false
}
