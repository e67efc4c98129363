// Package auth authenticates and authorizes callers. It creates, hashes and recognizes tokens and defines what
// roles allow. It stores nothing and does no I/O.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// ErrUnauthenticated is returned for a missing, malformed, unknown or revoked token. It does not say which.
var ErrUnauthenticated = errors.New("the token is missing, invalid or revoked")

// ErrForbidden is returned when an authenticated caller lacks a permission.
var ErrForbidden = errors.New("not allowed")

// RoleError is returned when an action requires a role that the caller lacks. It wraps ErrForbidden.
type RoleError struct {
	Needs  fleet.Role
	Tenant string     // name of the tenant in which the role is required; "" for a fleet-wide role
	Has    fleet.Role // the role of the caller; "" for none
}

func (e *RoleError) Error() string {
	text := fmt.Sprintf("requires the %s role", e.Needs)
	if e.Tenant != "" {
		text += fmt.Sprintf(" in tenant %q", e.Tenant)
	}
	return text
}

// Unwrap returns ErrForbidden.
func (e *RoleError) Unwrap() error { return ErrForbidden }

// The prefixes make a leaked token recognizable.
const (
	AgentTokenPrefix = "kedge-agent-"
	APITokenPrefix   = "kedge-api-"
	SessionPrefix    = "kedge-session-"
	KubeTokenPrefix  = "kedge-kube-"
)

// NewToken returns a new token of at least 256 random bits with the given prefix.
func NewToken(prefix string) string {
	return prefix + strings.ToLower(rand.Text()+rand.Text())
}

// Hash returns the hash that is stored of a token. Tokens are long and random, so a fast hash is sufficient.
func Hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
