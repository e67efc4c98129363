package fleet

import "log/slog"

// GitCredential is the secret of a Credential for an Argo CD that reads the repository itself.
type GitCredential struct {
	Kind     CredentialKind
	Username string
	Secret   SecretText // password, token or private key
}

// SecretText is a text that must not appear in logs and errors: it prints as a placeholder.
type SecretText struct{ text string }

// NewSecretText returns a text that prints as a placeholder.
func NewSecretText(text string) SecretText { return SecretText{text} }

// Reveal returns the text.
func (s SecretText) Reveal() string { return s.text }

// Equal reports whether two texts are equal.
func (s SecretText) Equal(other SecretText) bool { return s == other }

// String implements [fmt.Stringer].
func (SecretText) String() string { return "[redacted]" }

// GoString implements [fmt.GoStringer].
func (SecretText) GoString() string { return "[redacted]" }

// LogValue implements [slog.LogValuer].
func (s SecretText) LogValue() slog.Value { return slog.StringValue(s.String()) }

// CredentialWithheld says why an agent does not get the credential of a repository.
type CredentialWithheld string

// Why an agent does not get the credential of a repository.
const (
	// CredentialNotWithheld means that the agent gets the credential, or that the repository has none.
	CredentialNotWithheld CredentialWithheld = ""
	// CredentialNotEnabled means that the agent does not have DeliverGitCredentials.
	CredentialNotEnabled CredentialWithheld = "NotEnabled"
	// CredentialOfOtherTenant means that the repository belongs to another tenant than the agent, whose administrators
	// must not get its credential.
	CredentialOfOtherTenant CredentialWithheld = "OtherTenant"
)
