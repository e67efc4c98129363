package apiv1

// HeldPrune is an object that has left the source of a deployment and is kept until somebody confirms
// that it may be deleted.
type HeldPrune struct {
	Target string `json:"target" doc:"ID of the target."`
	Agent  string `json:"agent"`
	Object string `json:"object" doc:"As it is confirmed: 'Kind.group namespace/name'."`
	Reason string `json:"reason,omitempty" doc:"Why it is held."`
	Commit string `json:"commit,omitempty" doc:"The commit that is desired, without the object."`
	// Current is false while the agent has not answered to what is desired.
	Current   bool `json:"current" doc:"The agent speaks of what is desired now; otherwise it has not answered yet, and nothing can be confirmed."`
	Confirmed bool `json:"confirmed" doc:"The deletion was confirmed, and the agent has not carried it out yet."`
}

// ConfirmPrune asks for held deletions to be carried out.
type ConfirmPrune struct {
	Objects []string `json:"objects,omitempty" nullable:"false" maxItems:"4096" doc:"Which, as held-prunes lists them."`
	All     bool     `json:"all,omitempty" doc:"Everything that is held now; count has to be right."`
	Count   int      `json:"count,omitempty" minimum:"0" doc:"With all: how many there are, an object on two agents counted twice."`
	Agent   string   `json:"agent,omitempty" maxLength:"253" doc:"Only on this one; on all that hold them when absent."`
}

// ConfirmedPrune is what was confirmed.
type ConfirmedPrune struct {
	Objects   []string `json:"objects" nullable:"false" doc:"Each once."`
	Deletions int      `json:"deletions" doc:"How many were confirmed: an object on two agents counted twice, as in count."`
	Targets   int      `json:"targets" doc:"How many targets were told; 0 when all of it was confirmed before."`
}
