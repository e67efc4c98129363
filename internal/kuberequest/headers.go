package kuberequest

import (
	"net/http"
	"slices"
	"strings"
)

// Headers that pass through a tunnel. All others are dropped: credentials and cookies of the caller, and whatever a proxy or
// a later version of net/http adds.
var (
	requestHeaders = []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Content-Encoding", "Content-Type", "Expect", "If-Match", "If-Modified-Since", "If-None-Match",
		"If-Unmodified-Since", "Range", "User-Agent", "Kubectl-Command", "Kubectl-Session", "Traceparent", "Tracestate", "X-Stream-Protocol-Version",
	}
	responseHeaders = []string{
		"Accept-Ranges", "Audit-Id", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Range", "Content-Type",
		"Date", "Etag", "Expires", "Last-Modified", "Retry-After", "Trailer", "Vary", "Warning", "X-Content-Type-Options",
		"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "X-Stream-Protocol-Version", OriginHeader,
	}
	upgradeHeaders = []string{
		"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version",
	}
	// upgrades are the protocols of the Kubernetes API.
	upgrades = []string{"websocket", "spdy/3.1"}
)

// OriginHeader says who responded: "kedge", "agent" or "cluster".
const OriginHeader = "Kedge-Origin"

// KeepRequestHeaders removes the headers of a request that must not reach an API server.
func KeepRequestHeaders(h http.Header, upgrade bool) {
	keep(h, requestHeaders, upgrade)
	if _, ok := h["User-Agent"]; !ok {
		h.Set("User-Agent", "") // not that of net/http
	}
}

// KeepResponseHeaders removes the headers of a response that must not reach a caller.
func KeepResponseHeaders(h http.Header, upgrade bool) { keep(h, responseHeaders, upgrade) }

func keep(h http.Header, list []string, upgrade bool) {
	for name := range h {
		canonical := http.CanonicalHeaderKey(name)
		if !slices.Contains(list, canonical) && !(upgrade && slices.Contains(upgradeHeaders, canonical)) {
			delete(h, name)
		}
	}
}

// Upgrade returns the protocol that a request wants to change to, in lower case, or "".
func Upgrade(h http.Header) string {
	for _, value := range h.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return strings.ToLower(h.Get("Upgrade"))
			}
		}
	}
	return ""
}

// AllowsUpgrade reports whether a connection may change to a protocol: only for sessions, and only to the protocols of the
// Kubernetes API. Another protocol could carry requests that nobody checks.
func (r Request) AllowsUpgrade(protocol string) bool {
	return protocol == "" || r.Class() == Session && slices.Contains(upgrades, protocol)
}

// Impersonates reports whether a caller wants to be somebody else.
func Impersonates(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			return true
		}
	}
	return false
}
