package gitserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Deleted as the content of a file in Commit removes it.
const Deleted = "\x00deleted"

// Repo is somebody's clone, without a work tree: commits are made from maps, by one git process
// each. It belongs to one goroutine.
type Repo struct {
	dir    string
	remote string // "" for none: it is the server's own
	branch string
	heads  map[string]string // newest commit by branch: asking git costs more than the commit
}

// NewRepo makes an empty clone in dir that pushes to remote, with main as its branch.
func NewRepo(_ context.Context, dir, remote string) (*Repo, error) {
	if err := makeBare(dir, cloneConfig); err != nil {
		return nil, err
	}
	return &Repo{dir: dir, remote: remote, branch: "main", heads: map[string]string{}}, nil
}

// CreateHosted makes a repository on the server and a Repo that is no clone but the repository itself: what is
// committed is there at once, and Push does nothing. A push costs ten processes.
func (s *Server) CreateHosted(repo string) (*Repo, error) {
	if err := s.Create(repo); err != nil {
		return nil, err
	}
	return &Repo{dir: s.Dir(repo), branch: "main", heads: map[string]string{}}, nil
}

// CreateRepo makes a repository on the server and a clone of it in dir, which pushes over HTTP.
func (s *Server) CreateRepo(ctx context.Context, repo, dir string) (*Repo, error) {
	if err := s.Create(repo); err != nil {
		return nil, err
	}
	return NewRepo(ctx, dir, s.URL(repo))
}

// Branch returns the branch that Commit adds to.
func (r *Repo) Branch() string { return r.branch }

// Head returns the newest commit of the branch, "" before the first.
func (r *Repo) Head() string { return r.heads[r.branch] }

// Commit adds a commit to the branch that changes files, by path from the root of the repository,
// and returns its name. Files that are not mentioned stay; [Deleted] removes one.
func (r *Repo) Commit(ctx context.Context, files map[string]string, message string) (string, error) {
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit refs/heads/%s\nmark :1\ncommitter Kedge <kedge@localhost> %d +0000\ndata %d\n%s\n",
		r.branch, time.Now().Unix(), len(message), message)
	if head := r.Head(); head != "" {
		fmt.Fprintf(&in, "from %s\n", head)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.ContainsAny(name, "\n\"") {
			return "", fmt.Errorf("committing %q: the path cannot be written", name)
		}
		if content := files[name]; content == Deleted {
			fmt.Fprintf(&in, "D %s\n", name)
		} else if commit, ok := strings.CutPrefix(content, gitlink); ok {
			fmt.Fprintf(&in, "M 160000 %s %s\n", commit, name)
		} else if target, ok := strings.CutPrefix(content, symlink); ok {
			fmt.Fprintf(&in, "M 120000 inline %s\ndata %d\n%s\n", name, len(target), target)
		} else {
			fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", name, len(content), content)
		}
	}
	return r.importCommit(ctx, &in)
}

func (r *Repo) importCommit(ctx context.Context, in *bytes.Buffer) (string, error) {
	in.WriteString("get-mark :1\ndone\n")
	return r.importStream(ctx, in)
}

// importStream runs git fast-import with a stream that ends by asking for the newest commit.
func (r *Repo) importStream(ctx context.Context, in *bytes.Buffer) (string, error) {
	out, err := run(ctx, r.dir, in, "fast-import", "--quiet", "--force", "--done")
	if err != nil {
		return "", err
	}
	r.heads[r.branch] = strings.TrimSpace(out)
	return r.heads[r.branch], nil
}

// symlink marks content that Symlink made.
const symlink = "\x00symlink"

// Symlink is the content of a file for Commit that makes it a symbolic link.
func Symlink(target string) string { return symlink + target }

// gitlink marks content that Gitlink made.
const gitlink = "\x00gitlink"

// Gitlink is the content of a file for Commit that makes it a submodule at a commit of another
// repository, which .gitmodules names.
func Gitlink(commit string) string { return gitlink + commit }

// Switch makes name the branch; if it is new, it begins at the newest commit of the present one.
func (r *Repo) Switch(ctx context.Context, name string) error {
	head := r.Head()
	r.branch = name
	if r.Head() != "" || head == "" {
		return nil
	}
	return r.Reset(ctx, head)
}

// Reset moves the branch to commit.
func (r *Repo) Reset(ctx context.Context, commit string) error {
	if _, err := run(ctx, r.dir, nil, "update-ref", "refs/heads/"+r.branch, commit); err != nil {
		return err
	}
	r.heads[r.branch] = commit
	return nil
}

// Drop deletes a branch of the clone; the server keeps its own.
func (r *Repo) Drop(ctx context.Context, name string) error {
	delete(r.heads, name)
	_, err := run(ctx, r.dir, nil, "update-ref", "-d", "refs/heads/"+name)
	return err
}

// Tag names the newest commit; a message makes it an annotated tag. An existing one is moved.
func (r *Repo) Tag(ctx context.Context, name, message string) error {
	args := []string{"tag", "--force", name, "refs/heads/" + r.branch}
	if message != "" {
		args = []string{"tag", "--force", "--annotate", "--message", message, name, "refs/heads/" + r.branch}
	}
	_, err := run(ctx, r.dir, nil, args...)
	return err
}

// Push pushes full refs, or the branch when none are given.
func (r *Repo) Push(ctx context.Context, refs ...string) error { return r.push(ctx, "", refs) }

// ForcePush is Push that overwrites what is there.
func (r *Repo) ForcePush(ctx context.Context, refs ...string) error { return r.push(ctx, "+", refs) }

func (r *Repo) push(ctx context.Context, force string, refs []string) error {
	if r.remote == "" {
		return nil
	}
	if len(refs) == 0 {
		refs = []string{"refs/heads/" + r.branch}
	}
	args := []string{"push", "--quiet", r.remote}
	for _, ref := range refs {
		args = append(args, force+ref+":"+ref)
	}
	_, err := run(ctx, r.dir, nil, args...)
	return err
}

// DeleteRemote deletes full refs on the server.
func (r *Repo) DeleteRemote(ctx context.Context, refs ...string) error {
	if r.remote == "" {
		for _, ref := range refs {
			if _, err := run(ctx, r.dir, nil, "update-ref", "-d", ref); err != nil {
				return err
			}
		}
		return nil
	}
	args := []string{"push", "--quiet", r.remote}
	for _, ref := range refs {
		args = append(args, ":"+ref)
	}
	_, err := run(ctx, r.dir, nil, args...)
	return err
}

// CommitAndPush is Commit followed by Push.
func (r *Repo) CommitAndPush(ctx context.Context, files map[string]string, message string) (string, error) {
	commit, err := r.Commit(ctx, files, message)
	if err != nil {
		return "", err
	}
	return commit, r.Push(ctx)
}

// run runs git in the bare repository dir ("" for none) apart from the user's own configuration.
func run(ctx context.Context, dir string, stdin *bytes.Buffer, args ...string) (string, error) {
	if dir != "" {
		args = append([]string{"--git-dir=" + dir}, args...)
	}
	cmd := exec.CommandContext(ctx, "git", args...)
	// Variables of a git that runs us, such as a hook's GIT_DIR, must not reach this one.
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	cmd.Env = append(environ,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Kedge", "GIT_AUTHOR_EMAIL=kedge@localhost",
		"GIT_COMMITTER_NAME=Kedge", "GIT_COMMITTER_EMAIL=kedge@localhost",
	)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("running git %s: %w: %s", args, err, strings.TrimSpace(stderr.String()))
		}
		return "", fmt.Errorf("running git %s: %w", args, err)
	}
	return string(out), nil
}
