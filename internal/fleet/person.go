package fleet

import "time"

// Person is a person who has logged in. Memberships, sessions, and the audit log refer to Name. Issuer and
// Subject identify the person: the identity provider never reuses them. A name is bound to them at the first
// login, so that another person who gets the same name later inherits nothing.
type Person struct {
	Name        string // value of the claim that names people
	Issuer      string // URL of the identity provider
	Subject     string // its claim sub
	DisplayName string // for display only
	CreatedAt   time.Time
	LoggedInAt  time.Time // time of the last login
	Sessions    int       // number of open sessions; filled in by listings
}

// Is reports whether two logins belong to the same person.
func (p Person) Is(other Person) bool { return p.Issuer == other.Issuer && p.Subject == other.Subject }
