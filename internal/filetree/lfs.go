package filetree

import "bytes"

// IsLFSPointer reports whether a file is a Git LFS pointer: the file itself is in other storage and is not part
// of the commit.
func IsLFSPointer(content []byte) bool {
	const maxPointer = 1024 // from the specification
	return len(content) < maxPointer && bytes.HasPrefix(content, []byte("version https://git-lfs.github.com/spec/v1\n"))
}

// LFSProblem explains to the author of a tree how to fix a Git LFS pointer.
const LFSProblem = "a pointer to a file in Git LFS, which is not fetched: keep the file itself in Git (git lfs migrate export)"
