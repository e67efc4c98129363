package seal

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a password, token or private key in plain text. It is redacted in messages, logs and JSON. Only
// Reveal returns it.
type Secret struct{ text string }

// NewSecret wraps a secret.
func NewSecret(text string) Secret { return Secret{text: text} }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return s.text }

// Empty reports whether the secret is empty.
func (s Secret) Empty() bool { return s.text == "" }

const redacted = "(secret)"

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// Format prints a placeholder for every verb of fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns a placeholder for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns a placeholder for every encoding.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
