package gitsource

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
)

// Ref is the result of resolving a revision.
type Ref struct {
	// Name is the full name of the ref, "HEAD" for the default branch and "" for a commit.
	Name string
	// Commit is the full id of the commit. Tags are peeled.
	Commit string
	// Err is set if the revision does not exist or is not accepted, for example a *RefNotFoundError. Then Name
	// and Commit are "".
	Err error
}

const (
	heads = "refs/heads/"
	tags  = "refs/tags/"
	head  = "HEAD"
)

// isCommit reports whether a revision is a full commit id.
func isCommit(revision string) bool {
	if len(revision) != 40 {
		return false
	}
	return !strings.ContainsFunc(revision, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'f')
	})
}

// candidates returns the refs that a revision may refer to, in order of preference. It returns nil for a commit
// id and for an invalid ref name. A branch is preferred over a tag of the same name, because people deploy from
// branches.
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

// validRef implements git's rules for ref names (git check-ref-format). A valid name is safe as an argument and
// as input of git cat-file.
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
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || strings.HasPrefix(element, ".") || strings.HasSuffix(element, ".lock") {
			return false
		}
	}
	return true
}

// localRef returns the ref of a mirror for a remote ref. It is flat, so that a branch a can be replaced by a/b.
func localRef(remote string) string {
	sum := sha256.Sum256([]byte(remote))
	return "refs/kedge/" + hex.EncodeToString(sum[:16])
}
