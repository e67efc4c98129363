package wire

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// NewToken is the next token of an agent on its way to it. It must not be logged.
type NewToken struct {
	Operation fleet.OperationID
	Token     string
}

// TokenStored is an agent's answer to NewToken.
type TokenStored struct {
	Operation fleet.OperationID
	Problem   string // why it could not be kept; "" when it was
}

// String keeps the token out of logs.
func (t NewToken) String() string { return "new token of operation " + string(t.Operation) }

// GoString is String.
func (t NewToken) GoString() string { return t.String() }

// Proto is the message of t.
func (t NewToken) Proto() *agentv1.NewToken {
	return &agentv1.NewToken{Operation: string(t.Operation), Token: t.Token}
}

// ParseNewToken reads the next token of an agent. One that does not fit into a header is refused:
// kept, it would lock the agent out.
func ParseNewToken(m *agentv1.NewToken) (NewToken, error) {
	if err := checkID("operation", m.GetOperation()); err != nil {
		return NewToken{}, err
	}
	if n := len(m.GetToken()); n == 0 || n > maxToken {
		return NewToken{}, frameError("the new token has %d bytes, not 1 to %d", n, maxToken)
	}
	for _, c := range []byte(m.GetToken()) {
		if c <= ' ' || c > '~' {
			return NewToken{}, frameError("the new token holds something else than printable ASCII")
		}
	}
	return NewToken{Operation: fleet.OperationID(m.GetOperation()), Token: m.GetToken()}, nil
}

// Proto is the message of t, made fit to be sent.
func (t TokenStored) Proto() *agentv1.TokenStored {
	return &agentv1.TokenStored{Operation: string(t.Operation), Problem: clean(t.Problem, maxMessage)}
}

// ParseTokenStored reads whether an agent keeps its next token.
func ParseTokenStored(m *agentv1.TokenStored) (TokenStored, error) {
	if err := checkID("operation", m.GetOperation()); err != nil {
		return TokenStored{}, err
	}
	return TokenStored{Operation: fleet.OperationID(m.GetOperation()), Problem: clean(m.GetProblem(), maxMessage)}, nil
}
