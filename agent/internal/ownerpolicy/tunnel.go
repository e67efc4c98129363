package ownerpolicy

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/kuberequest"
)

// Tunnel restricts the requests of people through the tunnel.
type Tunnel struct {
	Enabled    *bool    `json:"enabled"`
	ReadOnly   bool     `json:"readOnly"`
	Namespaces Patterns `json:"namespaces"`
	Exec       *bool    `json:"exec"`
	Secrets    *bool    `json:"secrets"`
}

// RefuseRequest returns why a request through the tunnel is not allowed, or a zero Cause.
func (p Policy) RefuseRequest(r kuberequest.Request) fleet.Cause {
	t := p.Tunnel
	restricted := len(t.Namespaces.Allow) > 0 || len(t.Namespaces.Deny) > 0
	switch {
	case off(t.Enabled):
		return refused("the owner of this cluster does not allow the tunnel")
	case t.ReadOnly && r.Class() != kuberequest.Read:
		return refused("the owner of this cluster allows only reading through the tunnel")
	case off(t.Exec) && (r.Class() == kuberequest.Session || r.Subresource == "ephemeralcontainers"):
		return refused("the owner of this cluster does not allow sessions through the tunnel: exec, attach, port-forward, proxy, debug")
	case off(t.Secrets) && (r.Resource == "secrets" || r.Resource == "serviceaccounts" && r.Subresource == "token"):
		return refused("the owner of this cluster does not allow Secrets through the tunnel")
	case restricted && r.Class() == kuberequest.Read && (r.Resource == "" || r.Verb == "create"):
		return fleet.Cause{} // discovery, and questions about the caller
	case restricted && (r.Namespace == "" || !t.Namespaces.allow(r.Namespace)):
		return refused("the owner of this cluster allows only some namespaces through the tunnel, and not this one: use -n")
	}
	return fleet.Cause{}
}

func off(setting *bool) bool { return setting != nil && !*setting }
