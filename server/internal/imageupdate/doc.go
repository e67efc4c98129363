// Package imageupdate commits new images of a deployment to the branch that the deployment follows.
//
// It must not deploy anything: that the branch has moved is what deploys, as if a person had pushed. It must not
// check who is calling; the caller passes a permission. It writes to no branch that the host protects: the commit
// goes to a new branch then, with a link that proposes it.
//
// Invariants: images that are as asked for already are no change and no commit. A commit that was pushed is recorded
// even when the caller has left.
//
// Concurrency: an [Updater] is safe for concurrent use. A change that lost a race against another push is made again.
package imageupdate
