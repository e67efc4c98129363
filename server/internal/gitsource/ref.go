package gitsource

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
)

// Ref is what a revision names.
type Ref struct {
	// Name is the full name of the ref, "HEAD" for the default branch and "" for a commit.
	Name string
	// Commit is the full name of the commit; tags are followed to theirs.
	Commit string
	// Err says why the revision names nothing: a *RefNotFoundError. Name and Commit are then "".
	Err error
}

const (
	heads = "refs/heads/"
	tags  = "refs/tags/"
	head  = "HEAD"
)

// isCommit reports whether a revision is the full name of a commit.
func isCommit(revision string) bool {
	if len(revision) != 40 {
		return false
	}
	return !strings.ContainsFunc(revision, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'f')
	})
}

// candidates returns the refs that a revision may name, best first, and nil for a commit and for
// what cannot be the name of a ref. A branch wins over a tag of the same name: it is what people
// deploy from, and what moves.
func candidates(revision string) []string {
	switch {
	case revision == "", revision == head:
		return []string{head}
	case isCommit(revision), !validRef(revision):
		return nil
	case strings.HasPrefix(revision, "refs/"):
		return []string{revision}
	}
	return []string{heads + revision, tags + revision}
}

// validRef holds git's rules for the names of refs (git check-ref-format). What passes is safe
// as an argument and in a line to git cat-file.
func validRef(name string) bool {
	if name == "" || len(name) > 255 || name == "@" || strings.HasPrefix(name, "-") || strings.HasSuffix(name, ".") {
		return false
	}
	if strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.ContainsAny(name, " ~^:?*[\\\x7f") {
		return false
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return false
	}
	for level := range strings.SplitSeq(name, "/") {
		if level == "" || strings.HasPrefix(level, ".") || strings.HasSuffix(level, ".lock") {
			return false
		}
	}
	return true
}

// localRef is where a mirror keeps a remote ref. It is flat, so that a branch a can become a/b.
func localRef(remote string) string {
	sum := sha256.Sum256([]byte(remote))
	return "refs/kedge/" + hex.EncodeToString(sum[:16])
}
