package apiv1

import "time"

// Repository is a Git URL that a tenant deploys from.
type Repository struct {
	ID          string    `json:"id"`
	URL         string    `json:"url"`
	Credential  string    `json:"credential,omitempty" doc:"Name of the credential that it is read with; absent when it needs none."`
	Submodules  bool      `json:"submodules,omitempty" doc:"Whether paths may lead into its submodules."`
	Signers     string    `json:"signers,omitempty" doc:"Who must have signed a commit or tag for it to be used; absent when no signature is asked for."`
	Deployments int       `json:"deployments" doc:"How many deployments use it."`
	CheckedAt   time.Time `json:"checkedAt,omitzero" doc:"Since when error is what it is; absent before the first look."`
	Reason      string    `json:"reason" doc:"Identifies the state: RepositoryReadable, NotChecked, or why it cannot be read; see docs/reasons.md."`
	Error       string    `json:"error,omitempty" doc:"Why it cannot be read; absent when it can."`
	WebhookURL  string    `json:"webhookURL" doc:"Where its Git host sends push events; what it signs them with is asked for separately."`
	Spec        int64     `json:"spec" doc:"Rises with every edit; the number in the ETag."`
	CreatedAt   time.Time `json:"createdAt,omitzero"`
}

// CreateRepository asks for a repository. A deployment makes one by itself; this is for those that
// need a credential first.
type CreateRepository struct {
	URL        string `json:"url" doc:"URL of a Git repository."`
	Credential string `json:"credential,omitempty" doc:"Name of the credential to read it with."`
	Submodules bool   `json:"submodules,omitempty" doc:"Whether paths may lead into its submodules."`
	Signers    string `json:"signers,omitempty" doc:"Who must have signed a commit or tag for it to be used: lines of an OpenSSH allowed_signers file and armored OpenPGP public keys."`
}

// UpdateRepository changes a repository; what is absent stays as it is.
type UpdateRepository struct {
	Credential *string `json:"credential,omitempty" doc:"Name of the credential to read it with; empty for none."`
	Submodules *bool   `json:"submodules,omitempty" doc:"Whether paths may lead into its submodules."`
	Signers    *string `json:"signers,omitempty" doc:"Who must have signed a commit or tag for it to be used; empty for no such rule."`
}

// Webhook is what a Git host has to be told to announce pushes.
type Webhook struct {
	URL          string `json:"url"`
	Secret       string `json:"secret" doc:"Signs push events, or is sent with them: what hosts call secret or secret token."`
	SigningToken string `json:"signingToken,omitempty" doc:"The same secret in the form of the Standard Webhooks specification: GitLab's signing token."`
}

// Credential is how repositories are read. Its secret is never returned.
type Credential struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Kind       string    `json:"kind" enum:"https,ssh"`
	Username   string    `json:"username,omitempty"`
	KnownHosts string    `json:"knownHosts,omitempty"`
	Spec       int64     `json:"spec" doc:"Rises with every edit; the number in the ETag."`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	UpdatedAt  time.Time `json:"updatedAt,omitzero"`
}

// CreateCredential asks for a new credential.
type CreateCredential struct {
	Name       string `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Kind       string `json:"kind" enum:"https,ssh"`
	Username   string `json:"username,omitempty" doc:"For https; most Git hosts take any with a token."`
	Secret     string `json:"secret" plain:"-" doc:"Password, token or private key. It is encrypted, and no read returns it."`
	KnownHosts string `json:"knownHosts,omitempty" doc:"For ssh: lines of a known_hosts file."`
}

// UpdateCredential changes a credential; what is absent stays as it is.
type UpdateCredential struct {
	Username   *string `json:"username,omitempty"`
	Secret     *string `json:"secret,omitempty" plain:"-"`
	KnownHosts *string `json:"knownHosts,omitempty"`
}
