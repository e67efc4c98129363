package gitsource

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

var (
	// ErrEmpty is returned for a repository that has no branch and no tag yet.
	ErrEmpty = errors.New("the repository is empty")
	// ErrNotFetched is returned for a commit that is not in the mirror. Fetch it first.
	ErrNotFetched = errors.New("the commit was not fetched")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("gitsource is closed")

	errCorrupt    = errors.New("the mirror is damaged")
	errMissingRef = errors.New("the remote has no such ref")
	// errUnadvertised is an errMissingRef of a server that sends only commits that a ref points to.
	errUnadvertised = fmt.Errorf("%w, or does not send commits by id", errMissingRef)
)

// RefNotFoundError is returned for a revision that a repository does not have.
type RefNotFoundError struct{ Revision string }

func (e *RefNotFoundError) Error() string {
	switch {
	case e.Revision == "":
		return "the repository has no default branch: its HEAD refers to a branch that does not exist"
	case isCommit(e.Revision):
		return fmt.Sprintf("the repository has no commit %s", e.Revision)
	case strings.HasPrefix(e.Revision, "refs/"):
		return fmt.Sprintf("the repository has no ref %q", e.Revision)
	}
	return fmt.Sprintf("the repository has no branch or tag %q", e.Revision)
}

// RemoteError is returned when a repository cannot be read. Reason is "" if a retry may help.
type RemoteError struct {
	Reason  fleet.Reason
	URL     string // without a credential, which CheckURL rejects
	Problem string // for users
	Detail  string // more about the problem, for users; may be ""
	// RetryAfter is how long the host asks clients to wait; 0 if it does not.
	RetryAfter time.Duration
	cause      error
}

// Unwrap returns the exceeded limit, or ErrNoPermission, or nil.
func (e *RemoteError) Unwrap() error { return e.cause }

func (e *RemoteError) Error() string {
	text := fmt.Sprintf("reading %s: %s", e.URL, e.Problem)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// exitError is a failed run of git.
type exitError struct {
	command string
	stderr  string
	err     error
}

func (e *exitError) Error() string {
	return fmt.Sprintf("running git %s: %v: %s", e.command, e.err, lastLine(e.stderr))
}

func (e *exitError) Unwrap() error { return e.err }

// problems maps messages of git, in the C locale, to messages for users. The first match is used. Only this table
// and the next ones match messages of git. Problems of the connection to a remote are not among them: see fault.
var problems = []struct{ text, problem string }{
	{"does not appear to be a git repository", notReadable},
	{"Permission denied", notReadable},
	{"access denied", notReadable}, // hosts send these to git in the protocol
	{"does not exist", notReadable},
	{"not found", notReadable},
	{"Operation too slow", "the transfer stalled"},
	{"transport '", "the transport is not allowed"},
	{"fsck error", "the repository contains a damaged or forged object"},
	{"No space left on device", "the server has no disk space left for mirrors"},
}

var missing = []string{"couldn't find remote ref", "not our ref", unadvertised}

const unadvertised = "unadvertised object"

var corruptions = []string{
	"not a git repository", "bad object refs/kedge", "is corrupt", "object file", "bad config", "did not send all necessary objects",
	"unable to read tree", "missing necessary objects", "packed-refs", "invalid index-pack output",
}

// lastLine returns the last line that is an error message, or the last line, without git's prefix and of limited
// length.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	best := ""
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		if strings.HasPrefix(line, "fatal: ") || strings.HasPrefix(line, "error: ") {
			best = line[len("fatal: "):]
			break
		}
		if best == "" {
			best = line
		}
	}
	best = strings.ToValidUTF8(best, "?")
	if len(best) > 300 {
		best = best[:300] + "…"
	}
	return best
}
