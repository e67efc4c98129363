package server

import (
	"net/http"

	"github.com/kedge-dev/kedge/server/internal/relay"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// kubeAPI lets the REST API use the relay. API packages do not import each other.
type kubeAPI struct{ *relay.Relay }

// ServeKube implements restapi.Kube.
func (d kubeAPI) ServeKube(w http.ResponseWriter, r *http.Request, c restapi.KubeCaller, tenant, agent string) {
	d.Relay.ServeKube(w, r, relay.Caller{Principal: c.Principal, Key: c.Key, Guard: c.Guard}, tenant, agent)
}
