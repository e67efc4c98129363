package apiv1

// HeldPrune is an object that left the source of a deployment and is kept until its deletion is confirmed.
type HeldPrune struct {
	Target  string `json:"target" doc:"ID of the target."`
	Agent   string `json:"agent"`
	Object  string `json:"object" doc:"The name to confirm: 'Kind.group namespace/name'."`
	Reason  string `json:"reason,omitempty" doc:"Why it is held, in one word; see docs/reasons.md."`
	Message string `json:"message,omitempty" doc:"Why it is held."`
	Commit  string `json:"commit,omitempty" doc:"Commit of the desired state, which does not contain the object."`
	Deleted bool   `json:"deleted,omitempty" doc:"The deployment of the object is being deleted. Another one may have its name."`
	// Current is false until the agent has reported for the desired state.
	Current   bool `json:"current" doc:"The agent has reported for the current desired state. Otherwise you cannot confirm the deletion yet."`
	Confirmed bool `json:"confirmed" doc:"The deletion is confirmed, and the agent has not deleted the object yet."`
}

// ConfirmPrune confirms held deletions.
type ConfirmPrune struct {
	Objects []string `json:"objects,omitempty" nullable:"false" maxItems:"4096" doc:"Names of objects, as held-prunes lists them."`
	All     bool     `json:"all,omitempty" doc:"All objects that are held now; count must match."`
	Count   int      `json:"count,omitempty" minimum:"0" doc:"With all: the number of held deletions. An object on two agents counts twice."`
	Agent   string   `json:"agent,omitempty" maxLength:"253" doc:"Confirm only on this agent; on all agents if absent."`
}

// ConfirmedPrune lists the confirmed deletions.
type ConfirmedPrune struct {
	Objects   []string `json:"objects" nullable:"false" doc:"Names of the objects, each once."`
	Deletions int      `json:"deletions" doc:"Number of confirmed deletions. An object on two agents counts twice, as in count."`
	Targets   int      `json:"targets" doc:"Number of targets that change; 0 if all deletions were confirmed before."`
}
