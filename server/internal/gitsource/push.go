package gitsource

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// CommitRequest is a change to a branch.
type CommitRequest struct {
	// Branch is the branch to change; "" for the default branch.
	Branch string
	// Base is the full id of the commit that the change is based on. It must be the tip of Branch.
	Base string
	// Edits are the new contents of files by path from the root, with slashes. nil deletes a file. A file keeps
	// its mode. A new file is not executable. Links and folders cannot be written.
	Edits   map[string][]byte
	Message string
	// AuthorName and AuthorEmail are those of the author and the committer.
	AuthorName, AuthorEmail string
	// PushBranch is a new branch for the commit, if it must not be pushed to Branch.
	PushBranch string
}

// Pushed is the result of a push.
type Pushed struct {
	Commit string
	Branch string // without refs/heads/
	// Page is the URL that the host prints for opening a pull request; "" if it prints none.
	Page string
}

var (
	// ErrMoved is returned when the branch changed since Base. Read it again and repeat the change.
	ErrMoved = errors.New("the branch has changed")
	// ErrBranchExists is returned when PushBranch exists.
	ErrBranchExists = errors.New("the branch already exists")
	// ErrNoPermission is returned when the credential has no push access.
	ErrNoPermission = errors.New("the credential has no push access")
	// ErrNoChange is returned when the files already have the requested contents.
	ErrNoChange = errors.New("the commit would change nothing")
)

// ProtectedError is returned when the host rejects a push to this branch, for example because it is protected.
type ProtectedError struct {
	Branch string
	// Message is the message of the host, on one line and of limited length.
	Message string
}

func (e *ProtectedError) Error() string {
	return fmt.Sprintf("the host rejected the push to branch %q: %s", e.Branch, e.Message)
}

// EditError is returned for an invalid request.
type EditError struct{ Problem string }

func (e *EditError) Error() string { return e.Problem }

// Commit pushes a commit to a branch of the remote. The branch moves from Base to the new commit or not at all.
// It returns ErrMoved, ErrBranchExists, ErrNoChange, [*ProtectedError], [*EditError], or a [*RemoteError] that
// wraps ErrNoPermission. Hooks of a file:// remote do not run.
func (m *Manager) Commit(ctx context.Context, access Access, req CommitRequest) (Pushed, error) {
	if err := req.check(); err != nil {
		return Pushed{}, err
	}
	r, err := m.acquire(access)
	if err != nil {
		return Pushed{}, err
	}
	defer m.release(r.mirror)
	via, err := m.route(r)
	if err != nil {
		return Pushed{}, err
	}
	if err := r.lock(ctx); err != nil {
		return Pushed{}, err
	}
	defer r.unlock()
	ctx, cancel := via.withTimeout(ctx)
	defer cancel()
	pushed, err := r.commitLocked(ctx, via, req)
	if err != nil && ctx.Err() != nil {
		r.ready = false // git may have been killed: remove its leftovers next time
	}
	return pushed, err
}

func (u *handle) commitLocked(ctx context.Context, via *route, req CommitRequest) (Pushed, error) {
	refs, err := u.fetchLimitedLocked(ctx, via, []string{req.Base})
	if err != nil {
		return Pushed{}, err
	}
	if err := refs[req.Base].Err; err != nil {
		return Pushed{}, err
	}
	if err := u.verifyAccessLocked(ctx, via); err != nil {
		return Pushed{}, err
	}
	branch := req.Branch
	if branch == "" {
		if branch, err = u.defaultBranch(ctx, via); err != nil {
			return Pushed{}, err
		}
	}
	commit, err := u.writeCommitLocked(ctx, req)
	if err != nil {
		return Pushed{}, err
	}
	expected := req.Base
	if req.PushBranch != "" && req.PushBranch != branch {
		branch, expected = req.PushBranch, ""
	}
	output, err := u.push(ctx, via, commit, branch, expected)
	if err != nil {
		return Pushed{}, err
	}
	return Pushed{Commit: commit, Branch: branch, Page: pageURL(output, Host(u.url))}, nil
}

// defaultBranch returns the branch that the HEAD of the remote refers to.
func (r *mirror) defaultBranch(ctx context.Context, via *route) (string, error) {
	text, err := r.runRemote(ctx, via, "", func(url string) []string {
		return []string{"ls-remote", "--quiet", "--symref", "--end-of-options", url, head}
	})
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		target, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if ref, ok := strings.CutPrefix(target, "ref: "+heads); ok && name == head && validRef(heads+ref) {
			return ref, nil
		}
	}
	return "", &RefNotFoundError{}
}

// push moves a branch of the remote from the expected commit, "" for a new branch, to commit. It returns the
// output of the host.
func (r *mirror) push(ctx context.Context, via *route, commit, branch, expected string) (output string, _ error) {
	p, err := via.open(ctx, receivePack)
	defer p.close()
	ref := heads + branch
	var out string
	if err == nil {
		args := append(append([]string{}, pushArgs...), "--force-with-lease="+ref+":"+expected)
		if p.transport == "file" {
			args = append(args, "--receive-pack="+bareReceivePack)
		}
		args = append(args, "--end-of-options", p.url, commit+":"+ref)
		out, err = r.git.do(ctx, gitCall{dir: r.dir, args: args, conn: p, stderr: &output})
	}
	if err == nil {
		return output, nil
	}
	if refused := pushError(out, err, branch, expected); refused != nil {
		return "", refused
	}
	err = r.remoteError(ctx, p, err)
	var remote *RemoteError
	if errors.As(err, &remote) && (remote.Problem == notWritable || remote.Problem == notReadable) {
		remote.Problem, remote.cause = notWritable, ErrNoPermission
	}
	return "", err
}

// maxPage limits the length of a URL.
const maxPage = 2 << 10

// pageURL returns the first URL of the host itself in its output: most hosts print where to open a pull request.
func pageURL(output, host string) string {
	name, _, _ := strings.Cut(host, ":")
	for line := range strings.Lines(output) {
		text, ok := strings.CutPrefix(line, "remote:")
		if !ok {
			continue
		}
		for word := range strings.FieldsSeq(text) {
			u, err := url.Parse(word)
			if err == nil && len(word) <= maxPage && (u.Scheme == "https" || u.Scheme == "http") && u.User == nil && strings.EqualFold(u.Hostname(), name) {
				return u.String()
			}
		}
	}
	return ""
}

var pushArgs = []string{
	"push", "--porcelain", "--no-progress", "--no-thin", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no",
}

// bareReceivePack runs no program that the configuration of a repository on this machine names.
const bareReceivePack = "git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c receive.autogc=false -c core.fsmonitor=false receive-pack"

// moved are the messages of git for a branch that is not at the expected commit.
var moved = []string{"stale info", "fetch first", "non-fast-forward", "cannot lock ref", "incorrect old value", "failed to update ref", "already exists"}

// pushError parses git's line about the one ref of a push. It returns nil if there is none, because the push
// failed earlier.
func pushError(stdout string, err error, branch, expected string) error {
	for line := range strings.Lines(stdout) {
		fields := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		if len(fields) != 3 || fields[0] != "!" {
			continue
		}
		if containsAny(fields[2], moved) {
			if expected == "" {
				return fmt.Errorf("pushing to branch %q: %w", branch, ErrBranchExists)
			}
			return fmt.Errorf("pushing to branch %q: %w", branch, ErrMoved)
		}
		return &ProtectedError{Branch: branch, Message: hostMessage(err, fields[2])}
	}
	return nil
}

// hostMessage returns the reason that git shows, with the output of the host.
func hostMessage(err error, reason string) string {
	if _, after, ok := strings.Cut(reason, "("); ok {
		reason = strings.TrimSuffix(after, ")")
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		return cleanText(reason)
	}
	var output []string
	for line := range strings.Lines(exit.stderr) {
		if text, ok := strings.CutPrefix(line, "remote:"); ok {
			output = append(output, text)
		}
	}
	if len(output) == 0 {
		return cleanText(reason)
	}
	return cleanText(reason + ": " + strings.Join(output, " "))
}
