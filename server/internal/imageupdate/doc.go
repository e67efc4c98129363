// Package imageupdate commits new images of a deployment to the branch of the deployment.
//
// It must not deploy anything: the new commit on the branch does, like a push of a person. It must not
// authorize callers; the caller passes a permission. It does not write to a branch that the host protects: then
// the commit goes to a new branch, with a link to create a pull request.
//
// Invariants: unchanged images cause no commit. A pushed commit is recorded even if the caller has
// disconnected.
//
// Concurrency: an [Updater] is safe for concurrent use. A change that lost a race against another push is made
// again.
package imageupdate
