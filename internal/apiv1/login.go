package apiv1

import (
	"crypto/sha256"
	"encoding/base32"
	"time"
)

// LoginConfig says how people can log in.
type LoginConfig struct {
	OIDC     bool   `json:"oidc" doc:"Whether an identity provider is set up."`
	Issuer   string `json:"issuer,omitempty"`
	LoginURL string `json:"loginURL,omitempty" doc:"Where a browser goes to log in."`
	Session  bool   `json:"session,omitempty" doc:"Whether the request carries the cookie of a session. The session may have ended."`
}

// Exchange trades the one-time code of a CLI login for a session.
type Exchange struct {
	Code     string `json:"code"`
	Verifier string `json:"verifier" doc:"Whose SHA-256, in unpadded base64url, was the challenge of the login."`
}

// LoginCode is what a CLI prints and what the browser shows before it hands the session to it: eight
// letters and digits of the challenge, which people can compare.
func LoginCode(challenge string) string {
	sum := sha256.Sum256([]byte("kedge login code\x00" + challenge))
	text := base32.StdEncoding.EncodeToString(sum[:5])
	return text[:4] + "-" + text[4:]
}

// Session is a login of a person. Its token is shown this once.
type Session struct {
	Token     string    `json:"token"`
	Name      string    `json:"name"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}
