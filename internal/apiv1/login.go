package apiv1

import (
	"crypto/sha256"
	"encoding/base32"
	"time"
)

// LoginConfig describes how people can log in.
type LoginConfig struct {
	OIDC     bool   `json:"oidc" doc:"Whether an identity provider is configured."`
	Issuer   string `json:"issuer,omitempty"`
	LoginURL string `json:"loginURL,omitempty" doc:"URL at which a browser starts the login."`
	Session  bool   `json:"session,omitempty" doc:"Whether the request has the cookie of a session, which may have expired."`
}

// Exchange exchanges the one-time code of a CLI login for a session.
type Exchange struct {
	Code     string `json:"code"`
	Verifier string `json:"verifier" doc:"The PKCE verifier: its SHA-256, in unpadded base64url, is the challenge of the login."`
}

// LoginCode returns the code that the CLI prints and that the browser shows before it passes the session to the
// CLI: eight letters and digits of the challenge, which people can compare.
func LoginCode(challenge string) string {
	sum := sha256.Sum256([]byte("kedge login code\x00" + challenge))
	text := base32.StdEncoding.EncodeToString(sum[:5])
	return text[:4] + "-" + text[4:]
}

// Session is the login of a person. Its token is returned only once.
type Session struct {
	Token     string    `json:"token"`
	Name      string    `json:"name"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}
