// Package gitsource makes commits of remote repositories available as immutable trees. It drives
// the git program on one bare mirror per repository and knows nothing of what the files mean.
//
//	List    what do these revisions name now?          one git ls-remote
//	Fetch   bring the commits that they name           one git fetch
//	Tree    the files of a commit that was fetched     no process: one git cat-file stays open per mirror
//
// Nothing is ever checked out, so no hook, filter or symbolic link of a repository runs or is
// followed. git sees no configuration, credential or key of the user that runs the server. Writers
// of one mirror take turns; different repositories do not wait for each other; readers never wait
// for the network. A mirror is a cache: it may be deleted while no server runs, and one that is
// damaged is made anew.
package gitsource
