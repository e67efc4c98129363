// Package gitsource makes commits of remote repositories available as immutable trees. It drives
// the git program on bare mirrors, one for each repository of each owner, and knows nothing of what
// the files mean.
//
//	Fetch     bring the commits that revisions name      one git fetch; before it one git ls-remote, where that is not known
//	Tree      the files of a commit that was fetched     no process: one git cat-file stays open per mirror;
//	                                                     of a large repository one git fetch for files that are missing
//	Commit    a change to files as a commit, pushed      git fast-import and git push
//	Forget    delete mirrors that nobody uses            no process
//
// Nothing is ever checked out, so no hook, filter or symbolic link of a repository runs or is
// followed. git sees no configuration, credential or key: neither of the user that runs the server
// nor of the call. It connects to this process alone, which carries what it says to the one remote
// of that run, if the address policy allows it (see route).
//
// A mirror has no history: of what is fetched first only the commit itself. One that would be large lacks
// the contents of files that nobody has read, and trees lead into submodules where the access allows it:
// only there do readers wait for the network.
//
// Writers of one mirror take turns; different repositories do not wait for each other. What was fetched
// for one owner is never served to another, and within an owner only to a credential that the remote has
// accepted. A mirror is a cache: it may be deleted while no server runs, and one that is damaged is made
// anew.
package gitsource
