package restapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxHops limits the length of a proxy chain in a header; no real chain is that long.
const maxHops = 32

// fromClient replaces the peer address by the address of the client, for limits, the audit log, and the log, if
// the peer is a trusted proxy. The header of other peers is ignored, because anyone can send it.
func (a *api) fromClient(next http.Handler) http.Handler {
	if len(a.cfg.TrustedProxies) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client, ok := a.clientOf(r); ok {
			r = r.WithContext(r.Context()) // a handler must not change the given request
			r.RemoteAddr = client.String()
		}
		next.ServeHTTP(w, r)
	})
}

// clientOf returns the right-most hop that is not a trusted proxy: each proxy appends its peer, so hops further
// left may be forged by the client. ok is false if the peer is the client.
func (a *api) clientOf(r *http.Request) (client netip.Addr, ok bool) {
	peer, err := parseHop(r.RemoteAddr)
	if err != nil || !a.trusted(peer) {
		return netip.Addr{}, false
	}
	client = peer
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i, text := range slices.Backward(hops) {
		hop, err := parseHop(strings.TrimSpace(text))
		if err != nil || len(hops)-i > maxHops {
			break // a proxy wrote an invalid hop; those before it are unknown
		}
		client = hop
		if !a.trusted(hop) {
			break
		}
	}
	return client, client != peer
}

func (a *api) trusted(hop netip.Addr) bool {
	return slices.ContainsFunc(a.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(hop) })
}

// parseHop parses an address with or without a port.
func parseHop(text string) (netip.Addr, error) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return addr.Unmap().WithZone(""), err
}
