package link

import "github.com/kedge-dev/kedge/internal/fleet"

// sentCapabilities tracks the capabilities of the cluster that the server of a connection knows. Only the writer uses it
// after it has started.
type sentCapabilities struct {
	inHello   fleet.Capabilities // Hello contains their hash
	hash      string             // of the last capabilities that the server was sent, or whose hash it was sent
	requested bool               // by Welcome
	updates   bool               // the server accepts them again when they change
}

// nextCapabilities returns the capabilities to send now, if there are any.
func (n *connection) nextCapabilities() (next fleet.Capabilities, ok bool) {
	sent := &n.capabilities
	if !sent.requested && !(sent.updates && n.capabilitiesChanged.Swap(false)) {
		return fleet.Capabilities{}, false
	}
	next = sent.inHello
	if n.cfg.Capabilities != nil {
		next = n.cfg.Capabilities()
	}
	hash := next.Hash()
	if hash == "" || !sent.requested && hash == sent.hash { // not known, or unchanged
		return fleet.Capabilities{}, false
	}
	sent.requested, sent.hash = false, hash
	return next, true
}
