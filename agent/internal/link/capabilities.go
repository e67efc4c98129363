package link

import "github.com/kedge-dev/kedge/internal/fleet"

// offer is what the server of a connection knows of what the cluster offers. It is of the writer, once that has begun.
type offer struct {
	named fleet.Capabilities // in Hello, by their hash
	known string             // hash of what was named or told last
	asked bool               // Welcome asks for them
	again bool               // the server takes them whenever they have changed
}

// capabilities returns what the server is to be told of the cluster now, if anything.
func (n *connection) capabilities() (told fleet.Capabilities, ok bool) {
	if !n.offer.asked && !(n.offer.again && n.offering.Swap(false)) {
		return fleet.Capabilities{}, false
	}
	told = n.offer.named
	if n.cfg.Capabilities != nil {
		told = n.cfg.Capabilities()
	}
	hash := told.Hash()
	if hash == "" || !n.offer.asked && hash == n.offer.known { // nothing is known, or nothing is new
		return fleet.Capabilities{}, false
	}
	n.offer.asked, n.offer.known = false, hash
	return told, true
}
