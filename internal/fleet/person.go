package fleet

import "time"

// Person is somebody who has logged in. Memberships, sessions and the audit log go by Name; who that
// is, Issuer and Subject say, which the identity provider never gives to anybody else. A name is
// bound to them at the first login, so that somebody who is called the same later inherits nothing.
type Person struct {
	Name        string // what the claim said that people are named by
	Issuer      string // URL of the identity provider
	Subject     string // its claim sub
	DisplayName string // for the eye alone
	CreatedAt   time.Time
	LoggedInAt  time.Time // the last time
	Sessions    int       // that are open; filled in by listings
}

// Is reports whether two logins are by the same person.
func (p Person) Is(other Person) bool { return p.Issuer == other.Issuer && p.Subject == other.Subject }
