package restapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxHops bounds how much of a header is looked at; no chain of proxies is that long.
const maxHops = 32

// fromClient puts the address of the client in the place of the peer's, for limits, the audit log and
// the log, where the peer is a proxy that is trusted to say who it speaks for. Nobody else is believed:
// anybody can send the header.
func (a *api) fromClient(next http.Handler) http.Handler {
	if len(a.cfg.TrustedProxies) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client, ok := a.clientOf(r); ok {
			r = r.WithContext(r.Context()) // a handler may not change the request that it was given
			r.RemoteAddr = client.String()
		}
		next.ServeHTTP(w, r)
	})
}

// clientOf is the right-most hop that is not a trusted proxy: each proxy appends whom it has spoken to,
// so what is further left may be made up by the client. ok is false when the peer is the client.
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
			break // a proxy wrote that; who was before it is not known
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

// parseHop reads an address with or without a port.
func parseHop(text string) (netip.Addr, error) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return addr.Unmap().WithZone(""), err
}
