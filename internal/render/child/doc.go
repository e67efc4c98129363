// Package child carries out renders in processes that are confined, hold nothing, and can be killed.
//
// A child is the same program again, started with one hidden argument ([Requested], [Main]). It confines
// itself before it reads anything (package sandbox), then does one job after another over its standard
// input and output. It has no files: the parent holds the tree, and the child asks for what it needs by
// path. So only what is used is ever read, limits on it are counted where a hostile child cannot change
// them, and the parent knows what was read.
//
//	parent                              child
//	                             hello  ◀─  which walls stand
//	job  ─▶
//	                             query  ◀─  stat, read or list a path
//	reply ─▶                               as often as it likes
//	                            object  ◀─  one for each
//	                               end  ◀─  or what is wrong
//
// Nothing that a child says is believed: frames have a size, objects are parsed and identified anew, texts
// are cut and cleaned. [Pool] is the parent's side. A child serves one owner; how it ends is told to the
// user, for it is the input that ended it.
package child
