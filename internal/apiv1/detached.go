package apiv1

import "time"

// DetachedTarget is a target that left its environment, or whose agent was deleted. Its objects stay.
type DetachedTarget struct {
	Target     string    `json:"target" doc:"ID."`
	Deployment string    `json:"deployment" doc:"Name."`
	Agent      string    `json:"agent" doc:"Name of the agent that manages or managed its objects."`
	DetachedAt time.Time `json:"detachedAt"`
	Reason     string    `json:"reason,omitempty" doc:"Why it was detached."`
	Managed    bool      `json:"managed" doc:"The agent has not released the objects yet, so you cannot dismiss the target."`
}

// DismissTargets selects detached targets to remove from the listings, by deployment, by agent, or by both.
type DismissTargets struct {
	Deployment string `json:"deployment,omitempty" maxLength:"253" doc:"Name of the deployment."`
	Agent      string `json:"agent,omitempty" maxLength:"253" doc:"Name of the agent, which may be deleted."`
}

// DismissedTargets counts the dismissed targets.
type DismissedTargets struct {
	Dismissed int `json:"dismissed"`
	Kept      int `json:"kept" doc:"Number of targets that were not dismissed because their agent has not released the objects yet."`
}
