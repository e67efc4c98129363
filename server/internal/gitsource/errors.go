package gitsource

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrEmpty says that a repository has no branch and no tag yet.
	ErrEmpty = errors.New("the repository is empty")
	// ErrNotFetched says that a commit is not in the mirror: fetch it first.
	ErrNotFetched = errors.New("the commit was not fetched")
	// ErrClosed says that the manager was closed.
	ErrClosed = errors.New("gitsource is closed")

	errCorrupt    = errors.New("the mirror is damaged")
	errMissingRef = errors.New("the remote has no such ref")
	// errUnadvertised is an errMissingRef of a server that gives only what a ref names.
	errUnadvertised = fmt.Errorf("%w, or gives no commit by its name", errMissingRef)
)

// RefNotFoundError says that a repository has nothing by the name of a revision.
type RefNotFoundError struct{ Revision string }

func (e *RefNotFoundError) Error() string {
	switch {
	case e.Revision == "":
		return "the repository has no default branch: its HEAD names a branch that does not exist"
	case isCommit(e.Revision):
		return fmt.Sprintf("the repository has no commit %s", e.Revision)
	case strings.HasPrefix(e.Revision, "refs/"):
		return fmt.Sprintf("the repository has no ref %q", e.Revision)
	}
	return fmt.Sprintf("the repository has no branch or tag %q", e.Revision)
}

// Reason says what is wrong when trying again would not help; "" when it may.
type Reason string

// The reasons of a RemoteError.
const (
	// ReasonNotReadable is for a repository that does not exist or that the credential may not read.
	ReasonNotReadable Reason = "RepositoryNotReadable"
	// ReasonHostUnknown is for a host whose name has no address.
	ReasonHostUnknown Reason = "HostUnknown"
	// ReasonHostDenied is for a host that the address policy does not allow.
	ReasonHostDenied Reason = "HostDenied"
	// ReasonHostKeyUnknown is for an SSH host whose key is not among the known hosts of the credential.
	ReasonHostKeyUnknown Reason = "HostKeyUnknown"
	// ReasonRedirected is for a URL that leads to another one.
	ReasonRedirected Reason = "Redirected"
	// ReasonNotGit is for a URL that something else than a Git repository answers at.
	ReasonNotGit Reason = "NotAGitRepository"
	// ReasonCredentialUnusable is no credential where the transport needs one, or one that it cannot use.
	ReasonCredentialUnusable Reason = "CredentialUnusable"
)

// RemoteError says that a repository could not be read. Trying again may help when it has no Reason.
type RemoteError struct {
	Reason  Reason
	URL     string // holds no credential: CheckURL sees to it
	Problem string // for users
	Detail  string // what is known beside it; may be ""
	// RetryAfter is how long the host asks to be left alone; 0 when it does not.
	RetryAfter time.Duration
	cause      error
}

// Unwrap is for the limits of this package.
func (e *RemoteError) Unwrap() error { return e.cause }

func (e *RemoteError) Error() string {
	text := fmt.Sprintf("reading %s: %s", e.URL, e.Problem)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// exitError is a run of git that failed.
type exitError struct {
	command string
	stderr  string
	err     error
}

func (e *exitError) Error() string {
	return fmt.Sprintf("running git %s: %v: %s", e.command, e.err, lastLine(e.stderr))
}

func (e *exitError) Unwrap() error { return e.err }

// problems maps what git says, in the C locale, to what users can act on. The first match counts.
// This table and the next are the only places that read texts of git. What happens on the way to a
// remote is not among them: see fault.
var problems = []struct{ text, problem string }{
	{"does not appear to be a git repository", notReadable},
	{"Permission denied", notReadable},
	{"access denied", notReadable}, // hosts say these to git in the protocol
	{"does not exist", notReadable},
	{"not found", notReadable},
	{"Operation too slow", "the transfer stalled"},
	{"transport '", "the transport is not allowed"},
	{"fsck error", "the repository holds a damaged or forged object"},
	{"No space left on device", "the server has no space left for mirrors"},
}

var missing = []string{"couldn't find remote ref", "not our ref", unadvertised}

const unadvertised = "unadvertised object"

var corruptions = []string{
	"not a git repository", "bad object refs/kedge", "is corrupt", "object file", "bad config", "did not send all necessary objects",
	"unable to read tree", "missing necessary objects", "packed-refs", "invalid index-pack output",
}

// lastLine returns the last line that says something, without git's prefix and of a bounded length.
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
