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
	CredentialID CredentialID // "" if none is needed
	Submodules   bool         // whether paths may lead into submodules
	// Signers are the trusted signers of commits and tags: lines of an allowed_signers file and armored OpenPGP
	// keys. "" requires no signature.
	Signers      string
	SpecRevision int64 // rises with every edit
	CreatedAt    time.Time
	CheckedAt    time.Time // when it was last checked; zero before the first check
	StateSince   time.Time // since when it can, or cannot, be read; zero before the first check
	Error        string    // why it cannot be read; "" if it can
	// ErrorReason identifies Error; "" when a retry may help.
	ErrorReason Reason
}

// State returns the reason of the state of the repository; never "".
func (r Repository) State() Reason {
	switch {
	case r.Error != "":
		return cmp.Or(r.ErrorReason, ReasonRepositoryUnreadable)
	case r.CheckedAt.IsZero():
		return ReasonNotChecked
	}
	return ReasonRepositoryReadable
}

// CredentialKind defines how a credential is used.
type CredentialKind string

// The kinds of credential.
const (
	CredentialHTTPS CredentialKind = "https" // user name and password or token
	CredentialSSH   CredentialKind = "ssh"   // private key and known hosts
	// CredentialKubernetes is the access to the cluster of a push environment. It is created, changed and deleted with the
	// environment.
	CredentialKubernetes CredentialKind = "kubernetes"
)

// Credential gives a tenant access to repositories. Its secret is write-only: no read returns it.
type Credential struct {
	ID           CredentialID
	TenantID     TenantID
	Name         string // RFC 1123 label, unique in its tenant
	Kind         CredentialKind
	Username     string
	KnownHosts   string // lines of a known_hosts file, for SSH
	Sealed       Sealed // password, token or private key
	SpecRevision int64  // rises with every edit
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// Sealed is a secret encrypted with its own data key, which is encrypted with a key of the server.
type Sealed struct {
	KeyID string // identifies the key of the server
	Key   []byte // the data key, encrypted
	Data  []byte // the secret, encrypted
}
