package wire

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// NewToken is a new token for an agent. It must not be logged.
type NewToken struct {
	Operation fleet.OperationID
	Token     string
}

// TokenStored is the response of an agent to NewToken.
type TokenStored struct {
	Operation fleet.OperationID
	Problem   string // why the token could not be stored; "" when it is stored
}

// String omits the token, for logs.
func (t NewToken) String() string { return "new token of operation " + string(t.Operation) }

// GoString omits the token too.
func (t NewToken) GoString() string { return t.String() }

// Proto returns the message for t.
func (t NewToken) Proto() *agentv1.NewToken {
	return &agentv1.NewToken{Operation: string(t.Operation), Token: t.Token}
}

// ParseNewToken converts and validates a new token. It refuses a token that is not valid in a header, which would lock out
// the agent.
func ParseNewToken(m *agentv1.NewToken) (NewToken, error) {
	if err := checkID("operation", m.GetOperation()); err != nil {
		return NewToken{}, err
	}
	if n := len(m.GetToken()); n == 0 || n > maxToken {
		return NewToken{}, frameError("the new token has %d bytes, not 1 to %d", n, maxToken)
	}
	for _, c := range []byte(m.GetToken()) {
		if c <= ' ' || c > '~' {
			return NewToken{}, frameError("the new token contains characters other than printable ASCII")
		}
	}
	return NewToken{Operation: fleet.OperationID(m.GetOperation()), Token: m.GetToken()}, nil
}

// Proto returns the message for t, with valid values.
func (t TokenStored) Proto() *agentv1.TokenStored {
	return &agentv1.TokenStored{Operation: string(t.Operation), Problem: clean(t.Problem, maxMessage)}
}

// ParseTokenStored converts and validates the response of an agent to NewToken.
func ParseTokenStored(m *agentv1.TokenStored) (TokenStored, error) {
	if err := checkID("operation", m.GetOperation()); err != nil {
		return TokenStored{}, err
	}
	return TokenStored{Operation: fleet.OperationID(m.GetOperation()), Problem: clean(m.GetProblem(), maxMessage)}, nil
}
