package filetree

import "bytes"

// IsLFSPointer reports whether the content of a file only says where the file itself is, in the storage
// of Git LFS, which is not part of a commit.
func IsLFSPointer(content []byte) bool {
	const maxPointer = 1024 // as the specification says
	return len(content) < maxPointer && bytes.HasPrefix(content, []byte("version https://git-lfs.github.com/spec/v1\n"))
}

// LFSProblem tells the author of a tree what to do about a pointer to Git LFS that is read.
const LFSProblem = "a pointer to a file in Git LFS, which is not fetched: keep the file itself in Git (git lfs migrate export)"
