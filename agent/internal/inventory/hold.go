package inventory

import "encoding/json"

// Hold is why the deletion of an object that has left the source waits until a user confirms it by name. It is
// kept in the inventory, so that neither a restart nor a later version ends it: only a confirmation does, or
// that the object is in the source again.
type Hold string

const (
	// HeldOverLimit says that it left together with more objects than the limit of the policy allows.
	HeldOverLimit Hold = "OverLimit"
	// HeldAfterRecovery says that it was missing from the first version that the server sent after it had found
	// that it does not know what this cluster holds: a backup was restored, or the agent was enrolled again.
	HeldAfterRecovery Hold = "AfterRecovery"
)

// String completes "held: …".
func (h Hold) String() string {
	switch h {
	case "":
		return ""
	case HeldAfterRecovery:
		return "it was missing when the server recovered (a backup was restored, or the agent was enrolled again), and its deletion was not confirmed since"
	}
	return "it was among too many to be deleted at once, and was not confirmed since"
}

// UnmarshalJSON reads what earlier builds wrote too: true, for the one reason that they knew.
func (h *Hold) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "true":
		*h = HeldOverLimit
		return nil
	case "false":
		*h = ""
		return nil
	}
	var word string
	err := json.Unmarshal(text, &word)
	*h = Hold(word)
	return err
}
