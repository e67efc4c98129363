// Package plain turns the manifests below a folder, chosen by globs, into objects. What is written
// is what is applied: nothing is substituted.
//
// It works in two steps, so that a commit that touches nothing relevant costs no read: [Select]
// finds the files by listing just the folders that a glob can match, and [Parse] reads them.
// Nothing outside of the folder is ever read: symbolic links and submodules are not followed.
package plain
