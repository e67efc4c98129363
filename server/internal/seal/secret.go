package seal

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a password, token or private key in the clear. It prints as nothing wherever it is put
// by mistake: in a message, a log line or JSON. Only Reveal gives it away.
type Secret struct{ text string }

// NewSecret wraps a secret.
func NewSecret(text string) Secret { return Secret{text: text} }

// Reveal returns the secret itself, for the one place that uses it.
func (s Secret) Reveal() string { return s.text }

// Empty reports whether there is none.
func (s Secret) Empty() bool { return s.text == "" }

const redacted = "(secret)"

// String hides the secret.
func (s Secret) String() string { return redacted }

// Format hides the secret from every verb of fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret from every encoding.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
