package apiv1

import "time"

// Person is a person who has logged in through the identity provider.
type Person struct {
	Name        string    `json:"name" doc:"The name in memberships and in the audit log; bound to issuer and subject at the first login."`
	DisplayName string    `json:"displayName,omitempty"`
	Issuer      string    `json:"issuer" doc:"URL of the identity provider."`
	Subject     string    `json:"subject" doc:"The unique identifier of the person at the identity provider."`
	Sessions    int       `json:"sessions" doc:"Number of open sessions."`
	CreatedAt   time.Time `json:"createdAt,omitzero" doc:"Time of the first login."`
	LoggedInAt  time.Time `json:"loggedInAt,omitzero" doc:"Time of the last login."`
}
