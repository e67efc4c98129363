package apiv1

import "time"

// LoginConfig says how people can log in.
type LoginConfig struct {
	OIDC     bool   `json:"oidc" doc:"Whether an identity provider is set up."`
	Issuer   string `json:"issuer,omitempty"`
	LoginURL string `json:"loginURL,omitempty" doc:"Where a browser goes to log in."`
}

// Exchange trades the one-time code of a CLI login for a session.
type Exchange struct {
	Code     string `json:"code"`
	Verifier string `json:"verifier" doc:"Whose SHA-256, in unpadded base64url, was the challenge of the login."`
}

// Session is a login of a person. Its token is shown this once.
type Session struct {
	Token     string    `json:"token"`
	Name      string    `json:"name"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}
