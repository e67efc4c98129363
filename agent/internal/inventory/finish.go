package inventory

// Finish is how a Job or a Pod has finished.
type Finish string

const (
	// FinishedComplete: it has done its work.
	FinishedComplete Finish = "Complete"
	// FinishedFailed: it has failed for good.
	FinishedFailed Finish = "Failed"
	// FinishedUnseen: it is deleted when it has finished, and was gone before its end was seen.
	FinishedUnseen Finish = "Unseen"
)
