package gitsource

import (
	"context"
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

// RemoteError says that a repository could not be read. Trying again may help.
type RemoteError struct {
	URL     string // holds no credential: CheckURL sees to it
	Problem string // for users
	Detail  string // last words of git; may be ""
}

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

// problems maps what git and curl say, in the C locale, to what users can act on. The first match
// counts. This table is the only place that reads texts of git.
var problems = []struct{ text, problem string }{
	{"terminal prompts disabled", "repository not found or not readable"},
	{"could not read Username", "repository not found or not readable"},
	{"Authentication failed", "repository not found or not readable"},
	{"Permission denied", "repository not found or not readable"},
	{"does not appear to be a git repository", "repository not found or not readable"},
	{"not found", "repository not found or not readable"},
	{"returned error: 401", "repository not found or not readable"},
	{"returned error: 403", "repository not found or not readable"},
	{"returned error: 404", "repository not found or not readable"},
	{"returned error: 30", "the server redirects elsewhere, which is not followed: use the final URL"},
	{"returned error: 429", "the server asks to be called less often"},
	{"returned error: 5", "the server failed"},
	{"Host key verification failed", "the host key is not known"},
	{"Could not resolve host", "host not reachable"},
	{"Failed to connect", "host not reachable"},
	{"Connection refused", "host not reachable"},
	{"Connection timed out", "host not reachable"},
	{"Network is unreachable", "host not reachable"},
	{"No route to host", "host not reachable"},
	{"certificate", "the TLS certificate is not trusted"},
	{"SSL", "the TLS connection failed"},
	{"Operation too slow", "the transfer stalled"},
	{"transport '", "the transport is not allowed"},
	{"fsck error", "the repository holds a damaged or forged object"},
	{"No space left on device", "the server has no space left for mirrors"},
}

var corruptions = []string{
	"not a git repository", "bad object refs/kedge", "is corrupt", "object file", "bad config", "did not send all necessary objects",
	"unable to read tree", "missing necessary objects", "packed-refs", "invalid index-pack output",
}

// remoteError is the adapter for failed runs of git against a remote.
func remoteError(ctx context.Context, url string, timeout time.Duration, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return &RemoteError{URL: url, Problem: fmt.Sprintf("timed out after %s", timeout)}
	}
	var exit *exitError
	if ctx.Err() != nil || !errors.As(err, &exit) {
		return err
	}
	switch {
	case strings.Contains(exit.stderr, "couldn't find remote ref"), strings.Contains(exit.stderr, "not our ref"),
		strings.Contains(exit.stderr, "unadvertised object"):
		return fmt.Errorf("reading %s: %w", url, errMissingRef)
	}
	for _, p := range problems {
		if strings.Contains(exit.stderr, p.text) {
			return &RemoteError{URL: url, Problem: p.problem, Detail: lastLine(exit.stderr)}
		}
	}
	for _, text := range corruptions {
		if strings.Contains(exit.stderr, text) {
			return fmt.Errorf("reading %s: %w: %s", url, errCorrupt, lastLine(exit.stderr))
		}
	}
	return &RemoteError{URL: url, Problem: "git failed", Detail: lastLine(exit.stderr)}
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
