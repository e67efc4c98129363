package apiv1

import "time"

// KubeToken is a short-lived token for requests to clusters.
type KubeToken struct {
	Token     string    `json:"token" doc:"The token, for the API servers of clusters below /api/v1/tenants/{tenant}/agents/{agent}/kube."`
	ExpiresAt time.Time `json:"expiresAt" doc:"When new requests with it are refused. Open requests continue."`
}
