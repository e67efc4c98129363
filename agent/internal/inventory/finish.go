package inventory

// Finish is how a Job or a Pod has finished.
type Finish string

const (
	// FinishedComplete means: it has done its work.
	FinishedComplete Finish = "Complete"
	// FinishedFailed means: it has failed for good.
	FinishedFailed Finish = "Failed"
	// FinishedUnseen means: it is deleted when it has finished, and was gone before its end was seen.
	FinishedUnseen Finish = "Unseen"
)
