// Package plain parses the manifests below a folder, selected by globs. It substitutes nothing.
//
// It works in two steps, so that a commit without relevant changes reads no file: [Select] finds the files by
// listing only the folders that a glob can match, and [Parse] reads them. It never reads outside the folder:
// symbolic links and submodules are not followed.
package plain
