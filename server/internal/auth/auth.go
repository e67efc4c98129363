// Package auth says who is calling and what they may do. It makes, hashes and recognises tokens
// and holds the rules of roles. It stores nothing and talks to nobody.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// ErrUnauthenticated says that a token is missing, malformed, unknown or revoked. It never says which.
var ErrUnauthenticated = errors.New("the token is missing, wrong or revoked")

// ErrForbidden says that the caller is known and may not do that.
var ErrForbidden = errors.New("not allowed")

// RoleError says which role an action requires. It is an ErrForbidden.
type RoleError struct {
	Needs  fleet.Role
	Tenant string     // name of the tenant that the role is needed in; "" for a role in the whole fleet
	Has    fleet.Role // what the caller has there; "" for none
}

func (e *RoleError) Error() string {
	text := fmt.Sprintf("requires the %s role", e.Needs)
	if e.Tenant != "" {
		text += fmt.Sprintf(" in tenant %q", e.Tenant)
	}
	return text
}

// Unwrap makes it an ErrForbidden.
func (e *RoleError) Unwrap() error { return ErrForbidden }

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
