package apiv1

import "time"

// Person is somebody who has logged in by the identity provider.
type Person struct {
	Name        string    `json:"name" doc:"What memberships and the audit log name them by; bound to issuer and subject at the first login."`
	DisplayName string    `json:"displayName,omitempty"`
	Issuer      string    `json:"issuer" doc:"The identity provider."`
	Subject     string    `json:"subject" doc:"What the identity provider calls the person, and never anybody else."`
	Sessions    int       `json:"sessions" doc:"How many are open."`
	CreatedAt   time.Time `json:"createdAt,omitzero" doc:"Of the first login."`
	LoggedInAt  time.Time `json:"loggedInAt,omitzero" doc:"Of the last login."`
}
