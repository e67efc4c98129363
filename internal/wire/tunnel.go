package wire

import (
	"maps"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// An agent has a second connection for its tunnels, to the same address. With TLS it offers TunnelProtocol beside h2, with a
// WebSocket as a subprotocol, and without TLS it sends TunnelPreface first.
const (
	TunnelProtocol = "kedge-tunnel"
	TunnelPreface  = "KEDGE TUNNEL\r\n"
)

// MaxTunnels limits the streams that OpenTunnels asks for, and the tunnels of one replica of an agent.
const MaxTunnels = 200

// IdentityPrefix starts the names of all users and groups that an agent impersonates for callers of a tunnel, so that no
// server can act as another user of the cluster.
const IdentityPrefix = "kedge:"

const (
	maxGroups   = 64
	maxExtra    = 64
	maxIdentity = 512
)

// TunnelCaller is who uses a tunnel: the user that the agent impersonates.
type TunnelCaller struct {
	Request string // ID of the request, for logs
	User    string
	Groups  []string
	Extra   map[string][]string // keys in lower case
}

// Proto returns the message for c.
func (c TunnelCaller) Proto() *agentv1.Open {
	m := &agentv1.Open{Request: c.Request, User: c.User, Groups: c.Groups}
	for _, key := range slices.Sorted(maps.Keys(c.Extra)) {
		m.Extra = append(m.Extra, &agentv1.Extra{Key: key, Values: c.Extra[key]})
	}
	return m
}

// ParseTunnelCaller converts and validates Open. It refuses every identity that is not one of Kedge.
func ParseTunnelCaller(m *agentv1.Open) (TunnelCaller, error) {
	c := TunnelCaller{Request: clean(m.GetRequest(), maxWord), User: m.GetUser(), Groups: m.GetGroups(), Extra: map[string][]string{}}
	if len(c.Groups) > maxGroups || len(m.GetExtra()) > maxExtra {
		return TunnelCaller{}, frameError("the caller of a tunnel has too many groups or extra fields")
	}
	for _, name := range append([]string{c.User}, c.Groups...) {
		if !strings.HasPrefix(name, IdentityPrefix) || !validIdentity(name) {
			return TunnelCaller{}, frameError("the caller of a tunnel is not a user of Kedge")
		}
	}
	for _, e := range m.GetExtra() {
		if e.GetKey() == "" || e.GetKey() != strings.ToLower(e.GetKey()) || !validIdentity(e.GetKey()) || len(e.GetValues()) > maxExtra {
			return TunnelCaller{}, frameError("the caller of a tunnel has an invalid extra field")
		}
		for _, v := range e.GetValues() {
			if !validIdentity(v) {
				return TunnelCaller{}, frameError("the caller of a tunnel has an invalid extra field")
			}
		}
		c.Extra[e.GetKey()] = e.GetValues()
	}
	return c, nil
}

// validIdentity reports whether a text can be a header of a request to the API server.
func validIdentity(text string) bool {
	return len(text) <= maxIdentity && strings.TrimSpace(text) == text && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}
