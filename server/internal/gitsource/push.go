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
	// Branch is what is changed, "" for the default branch.
	Branch string
	// Base is the full name of the commit that the change was made from: the tip of Branch, or
	// somebody else was first.
	Base string
	// Edits are the new contents of files by their paths from the root, with slashes. nil deletes a
	// file. A file keeps its mode; a new one is not executable. Links and folders cannot be written.
	Edits   map[string][]byte
	Message string
	// AuthorName and AuthorEmail are also those of the committer.
	AuthorName, AuthorEmail string
	// PushBranch is a new branch that gets the commit instead of Branch, for who may not push there.
	PushBranch string
}

// Pushed is what a commit became.
type Pushed struct {
	Commit string
	Branch string // without refs/heads/
	// Page is where the host says that the branch can be proposed; "" when it says nothing.
	Page string
}

var (
	// ErrMoved says that somebody else has pushed to the branch: read it again and make the change anew.
	ErrMoved = errors.New("the branch has moved on")
	// ErrBranchExists says that the branch that was to be new is there already.
	ErrBranchExists = errors.New("the branch exists already")
	// ErrNoPermission says that the credential may not push.
	ErrNoPermission = errors.New("the credential may not push")
	// ErrNoChange says that the files have the wanted contents already.
	ErrNoChange = errors.New("the commit would change nothing")
)

// ProtectedError says that the host refuses a push to this branch, by its own rules.
type ProtectedError struct {
	Branch string
	// Message is what the host says, on one line and of a bounded length.
	Message string
}

func (e *ProtectedError) Error() string {
	return fmt.Sprintf("the host refuses a push to branch %q: %s", e.Branch, e.Message)
}

// EditError says why a request cannot be made into a commit: a user's mistake.
type EditError struct{ Problem string }

func (e *EditError) Error() string { return e.Problem }

// Commit adds a commit to a branch of the remote, and makes none when it cannot be pushed. The branch
// moves from Base to the new commit or not at all: ErrMoved, ErrBranchExists, ErrNoChange,
// [*ProtectedError] and [*EditError] say why not, [*RemoteError] with ErrNoPermission inside that the
// credential is for reading only. Hooks of a file:// remote do not run.
func (m *Manager) Commit(ctx context.Context, access Access, req CommitRequest) (Pushed, error) {
	if err := req.check(); err != nil {
		return Pushed{}, err
	}
	r, err := m.use(access)
	if err != nil {
		return Pushed{}, err
	}
	defer m.end(r.mirror)
	via, err := m.route(r)
	if err != nil {
		return Pushed{}, err
	}
	if err := r.lock(ctx); err != nil {
		return Pushed{}, err
	}
	defer r.unlock()
	ctx, cancel := via.within(ctx)
	defer cancel()
	pushed, err := r.commitLocked(ctx, via, req)
	if err != nil && ctx.Err() != nil {
		r.ready = false // git may have been killed: look for its leftovers next time
	}
	return pushed, err
}

func (u *use) commitLocked(ctx context.Context, via *route, req CommitRequest) (Pushed, error) {
	refs, err := u.watchedLocked(ctx, via, []string{req.Base})
	if err != nil {
		return Pushed{}, err
	}
	if err := refs[req.Base].Err; err != nil {
		return Pushed{}, err
	}
	if err := u.proveLocked(ctx, via); err != nil {
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
	said, err := u.push(ctx, via, commit, branch, expected)
	if err != nil {
		return Pushed{}, err
	}
	return Pushed{Commit: commit, Branch: branch, Page: pageIn(said, Host(u.url))}, nil
}

// defaultBranch asks the remote which branch its HEAD names.
func (r *mirror) defaultBranch(ctx context.Context, via *route) (string, error) {
	text, err := r.ask(ctx, via, "", func(url string) []string {
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

// push moves a branch of the remote from what it is expected to be, "" for nothing, to commit, and returns what the host has said.
func (r *mirror) push(ctx context.Context, via *route, commit, branch, expected string) (said string, _ error) {
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
		out, err = r.git.do(ctx, call{dir: r.dir, args: args, through: p, said: &said})
	}
	if err == nil {
		return said, nil
	}
	if refused := refusal(out, err, branch, expected); refused != nil {
		return "", refused
	}
	err = r.remoteError(ctx, p, err)
	var remote *RemoteError
	if errors.As(err, &remote) && (remote.Problem == notWritable || remote.Problem == notReadable) {
		remote.Problem, remote.cause = notWritable, ErrNoPermission
	}
	return "", err
}

// maxPage bounds the address of a page.
const maxPage = 2 << 10

// pageIn returns the first address on the host itself that it names in what it says of a push: most print where to propose a new
// branch.
func pageIn(said, host string) string {
	name, _, _ := strings.Cut(host, ":")
	for line := range strings.Lines(said) {
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

// bareReceivePack runs nothing that the configuration of a repository on this machine names.
const bareReceivePack = "git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c receive.autogc=false -c core.fsmonitor=false receive-pack"

// moved are git's words for a branch that is not what was expected.
var moved = []string{"stale info", "fetch first", "non-fast-forward", "cannot lock ref", "incorrect old value", "failed to update ref", "already exists"}

// refusal reads git's line about the one ref of a push, nil when there is none: then the push has not
// come so far.
func refusal(stdout string, err error, branch, expected string) error {
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

// hostMessage is what the host says of a push beside the reason that git shows.
func hostMessage(err error, reason string) string {
	if _, after, ok := strings.Cut(reason, "("); ok {
		reason = strings.TrimSuffix(after, ")")
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		return cleanText(reason)
	}
	var said []string
	for line := range strings.Lines(exit.stderr) {
		if text, ok := strings.CutPrefix(line, "remote:"); ok {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return cleanText(reason)
	}
	return cleanText(reason + ": " + strings.Join(said, " "))
}
