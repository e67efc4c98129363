package apiv1

import "time"

// Repository is a Git URL that a tenant deploys from.
type Repository struct {
	ID           string      `json:"id"`
	URL          string      `json:"url"`
	Credential   string      `json:"credential,omitempty" doc:"Name of the credential; absent if the repository needs none."`
	Submodules   bool        `json:"submodules,omitempty" doc:"Whether paths may lead into submodules."`
	Signers      string      `json:"signers,omitempty" doc:"Keys of trusted signers: commits or tags must be signed by one of them. Absent if no signature is required."`
	Deployments  int         `json:"deployments" doc:"Number of deployments that use it."`
	CheckedAt    time.Time   `json:"checkedAt,omitzero" doc:"When the server last checked the repository; absent before the first check."`
	Reason       string      `json:"reason" doc:"Identifier of the state: RepositoryReadable, NotChecked, or the cause of an error; see docs/reasons.md."`
	Error        string      `json:"error,omitempty" doc:"Why the repository cannot be read; absent if it can be read."`
	Conditions   []Condition `json:"conditions" nullable:"false" doc:"Readable."`
	WebhookURL   string      `json:"webhookURL" doc:"URL for push events of the Git host. Read the signing secret separately."`
	SpecRevision int64       `json:"specRevision" doc:"Rises with each edit; the number in the ETag."`
	CreatedAt    time.Time   `json:"createdAt,omitzero"`
}

// CreateRepository is the request for a new repository. A deployment creates its repository; create one
// yourself if it needs a credential first.
type CreateRepository struct {
	URL        string `json:"url" doc:"URL of a Git repository."`
	Credential string `json:"credential,omitempty" doc:"Name of the credential."`
	Submodules bool   `json:"submodules,omitempty" doc:"Whether paths may lead into submodules."`
	Signers    string `json:"signers,omitempty" doc:"Keys of trusted signers: lines of an OpenSSH allowed_signers file and armored OpenPGP public keys. Commits or tags must be signed by one of them."`
}

// UpdateRepository changes a repository. Absent fields do not change.
type UpdateRepository struct {
	Credential *string `json:"credential,omitempty" doc:"Name of the credential; empty for none."`
	Submodules *bool   `json:"submodules,omitempty" doc:"Whether paths may lead into submodules."`
	Signers    *string `json:"signers,omitempty" doc:"Keys of trusted signers; empty if no signature is required."`
}

// Webhook has the settings for the webhook at the Git host.
type Webhook struct {
	URL          string `json:"url"`
	Secret       string `json:"secret" doc:"The secret, or secret token, of the webhook. The Git host signs push events with it or sends it with them."`
	SigningToken string `json:"signingToken,omitempty" doc:"The same secret in the form of the Standard Webhooks specification: GitLab's signing token."`
}

// Credential gives access to repositories. Its secret is never returned.
type Credential struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"`
	Kind         string    `json:"kind" enum:"https,ssh"`
	Username     string    `json:"username,omitempty"`
	KnownHosts   string    `json:"knownHosts,omitempty"`
	SpecRevision int64     `json:"specRevision" doc:"Rises with each edit; the number in the ETag."`
	CreatedAt    time.Time `json:"createdAt,omitzero"`
	UpdatedAt    time.Time `json:"updatedAt,omitzero"`
}

// CreateCredential is the request for a new credential.
type CreateCredential struct {
	Name       string `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Kind       string `json:"kind" enum:"https,ssh"`
	Username   string `json:"username,omitempty" doc:"For https. With a token, most Git hosts accept any username."`
	Secret     string `json:"secret" plain:"-" doc:"Password, token, or private key. It is stored encrypted and never returned."`
	KnownHosts string `json:"knownHosts,omitempty" doc:"For ssh: lines of a known_hosts file."`
}

// UpdateCredential changes a credential. Absent fields do not change.
type UpdateCredential struct {
	Username   *string `json:"username,omitempty"`
	Secret     *string `json:"secret,omitempty" plain:"-"`
	KnownHosts *string `json:"knownHosts,omitempty"`
}
