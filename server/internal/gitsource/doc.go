// Package gitsource makes commits of remote repositories available as immutable trees. It runs the git program on
// bare mirrors, one per repository and owner. It does not interpret the files.
//
//	Fetch     fetch the commits of revisions             one git fetch, after one git ls-remote if a ref is not known yet
//	Tree      the files of a fetched commit              no process: one git cat-file stays open per mirror;
//	                                                     in a large repository one git fetch for missing files
//	Commit    commit changes to files and push them      git fast-import and git push
//	Forget    delete unused mirrors                      no process
//
// Nothing is ever checked out, so no hook, filter or symbolic link of a repository runs or is followed. git sees
// no configuration, credential or key, neither of the user that runs the server nor of the call. git connects
// only to this process, which forwards to the one remote of that run if the address policy allows it (see route).
//
// A mirror has no history: the first fetch of a ref fetches only the commit itself. A mirror of a large
// repository lacks the contents of files until they are read. Trees include submodules if the access allows it.
// Only in these two cases do readers wait for the network.
//
// Writers of one mirror take turns. Different repositories do not wait for each other. What was fetched for one
// owner is never served to another owner, and within an owner only to a credential that the remote has accepted.
// A mirror is a cache: you may delete it while no server runs, and the server recreates a damaged one.
package gitsource
