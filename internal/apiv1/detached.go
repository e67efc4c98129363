package apiv1

import "time"

// DetachedTarget is a target that left its environment, or whose agent was deleted. Its objects stay.
type DetachedTarget struct {
	Target     string    `json:"target" doc:"ID."`
	Deployment string    `json:"deployment" doc:"Name."`
	Agent      string    `json:"agent" doc:"Name of the agent that has, or had, its objects."`
	DetachedAt time.Time `json:"detachedAt"`
	Reason     string    `json:"reason,omitempty" doc:"Why it was detached."`
	Managed    bool      `json:"managed" doc:"Its agent has not let go of the objects yet, so that it cannot be dismissed."`
}

// DismissTargets names whose detached targets are dropped from the listings: one of the two, or both.
type DismissTargets struct {
	Deployment string `json:"deployment,omitempty" maxLength:"253" doc:"Those of this deployment."`
	Agent      string `json:"agent,omitempty" maxLength:"253" doc:"Those of the agent that had this name."`
}

// DismissedTargets says how many were.
type DismissedTargets struct {
	Dismissed int `json:"dismissed"`
	Kept      int `json:"kept" doc:"Those whose agent has not let go of the objects yet."`
}
