package fleet

import (
	"cmp"
	"time"
)

// Repository is a Git URL that a tenant deploys from.
type Repository struct {
	ID           RepositoryID
	TenantID     TenantID
	URL          string
	CredentialID CredentialID // "" when it is read without one
	Submodules   bool         // whether paths may lead into submodules
	// Signers are who must have signed a commit or tag for it to be used: lines of an allowed_signers
	// file and armored OpenPGP keys. "" asks for no signature.
	Signers   string
	Spec      int64 // rises with every edit
	CreatedAt time.Time
	CheckedAt time.Time // since when Error is what it is; zero before the first look
	Error     string    // why it cannot be read; "" when it can
	// ErrorReason identifies Error, as one of the reasons of package gitsource; "" when trying again may help.
	ErrorReason string
}

// State is the reason of the state of the repository; never "".
func (r Repository) State() Reason {
	switch {
	case r.Error != "":
		return cmp.Or(Reason(r.ErrorReason), ReasonRepositoryUnreadable)
	case r.CheckedAt.IsZero():
		return ReasonNotChecked
	}
	return ReasonRepositoryReadable
}

// CredentialKind says how a credential is used.
type CredentialKind string

// The kinds of credential.
const (
	CredentialHTTPS CredentialKind = "https" // user name and password or token
	CredentialSSH   CredentialKind = "ssh"   // private key and known hosts
)

// Credential is how a tenant reads repositories. Its secret is write-only: no read returns it.
type Credential struct {
	ID         CredentialID
	TenantID   TenantID
	Name       string // RFC 1123 label, unique in its tenant
	Kind       CredentialKind
	Username   string
	KnownHosts string // lines of a known_hosts file, for SSH
	Sealed     Sealed // password, token or private key
	Spec       int64  // rises with every edit
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// Sealed is a secret encrypted under a key of its own, which is encrypted under a key of the server.
type Sealed struct {
	KeyID string // which key of the server
	Key   []byte // the data key, encrypted
	Data  []byte // the secret, encrypted
}
