// Package child executes renders in confined processes that hold no data and can be killed.
//
// A child is the same program, started with one hidden argument ([Requested], [Main]). It confines itself
// before it reads anything (package sandbox), then executes one job after another over its standard input and
// output. It has no files: the parent holds the tree, and the child requests files by path. Therefore only
// needed files are read, the parent enforces limits where a hostile child cannot change them, and the parent
// knows the read set.
//
//	parent                              child
//	                             hello  ◀─  the active confinement
//	job  ─▶
//	                             query  ◀─  stat, read or list a path
//	reply ─▶                               any number of times
//	                            object  ◀─  one for each
//	                               end  ◀─  or an error
//
// The parent trusts no message of a child: frames have a maximum size, objects are parsed and identified again,
// texts are truncated and cleaned. [Pool] is the parent. A child serves one owner. If a child crashes, the
// input caused it, so the user sees the cause.
package child
