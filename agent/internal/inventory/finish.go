package inventory

// Finish is how an object has finished that does its work once: a Job or a Pod.
type Finish string

const (
	// FinishedComplete says that it has done its work.
	FinishedComplete Finish = "Complete"
	// FinishedFailed says that it has given up.
	FinishedFailed Finish = "Failed"
	// FinishedUnseen says that it was gone before anybody saw it finish, and is one that is deleted when it has.
	FinishedUnseen Finish = "Unseen"
)
