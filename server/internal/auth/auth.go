// Package auth says who is calling and what they may do. It makes, hashes and recognises tokens
// and holds the rules of roles. It stores nothing and talks to nobody.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
)

// ErrUnauthenticated says that a token is missing, malformed, unknown or revoked. It never says which.
var ErrUnauthenticated = errors.New("the token is missing, wrong or revoked")

// ErrForbidden says that the caller is known and may not do that.
var ErrForbidden = errors.New("not allowed")

// Prefixes make a token recognisable wherever it leaks.
const (
	AgentTokenPrefix = "kedge-agent-"
	APITokenPrefix   = "kedge-api-"
	SessionPrefix    = "kedge-session-"
)

// NewToken returns a fresh token of at least 256 random bits with the given prefix.
func NewToken(prefix string) string {
	return prefix + strings.ToLower(rand.Text()+rand.Text())
}

// Hash is what is stored of a token. Tokens are long and random, so a fast hash is enough.
func Hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
