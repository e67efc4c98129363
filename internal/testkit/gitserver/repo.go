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

// Deleted as the content of a file in Commit removes the file.
const Deleted = "\x00deleted"

// Repo is a clone without a work tree: Commit creates commits from maps, with one git process each. It must be
// used by one goroutine.
type Repo struct {
	dir    string
	remote string // "" if it is the repository of the server itself
	branch string
	heads  map[string]string // newest commit by branch: a query of git costs more than the commit
}

// NewRepo creates an empty clone in dir that pushes to remote, with the branch main.
func NewRepo(_ context.Context, dir, remote string) (*Repo, error) {
	if err := makeBare(dir, cloneConfig); err != nil {
		return nil, err
	}
	return &Repo{dir: dir, remote: remote, branch: "main", heads: map[string]string{}}, nil
}

// CreateHosted creates a repository on the server and a Repo that is the repository itself and not a clone:
// commits are available immediately, and Push does nothing. A push costs ten processes.
func (s *Server) CreateHosted(repo string) (*Repo, error) {
	if err := s.Create(repo); err != nil {
		return nil, err
	}
	return &Repo{dir: s.Dir(repo), branch: "main", heads: map[string]string{}}, nil
}

// CreateRepo creates a repository on the server and a clone of it in dir, which pushes over HTTP.
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

// Commit adds a commit to the branch that changes files, by path from the root of the repository, and returns
// its hash. Other files stay; [Deleted] removes one.
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

// importStream runs git fast-import with a stream that ends with a query for the newest commit.
func (r *Repo) importStream(ctx context.Context, in *bytes.Buffer) (string, error) {
	out, err := run(ctx, r.dir, in, "fast-import", "--quiet", "--force", "--done")
	if err != nil {
		return "", err
	}
	r.heads[r.branch] = strings.TrimSpace(out)
	return r.heads[r.branch], nil
}

// symlink marks content from Symlink.
const symlink = "\x00symlink"

// Symlink returns the content of a file for Commit that makes it a symbolic link.
func Symlink(target string) string { return symlink + target }

// gitlink marks content from Gitlink.
const gitlink = "\x00gitlink"

// Gitlink returns the content of a file for Commit that makes it a submodule at a commit of another repository,
// which .gitmodules names.
func Gitlink(commit string) string { return gitlink + commit }

// Switch selects the branch name; a new branch starts at the newest commit of the current one.
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

// Drop deletes a branch of the clone, but not on the server.
func (r *Repo) Drop(ctx context.Context, name string) error {
	delete(r.heads, name)
	_, err := run(ctx, r.dir, nil, "update-ref", "-d", "refs/heads/"+name)
	return err
}

// Tag tags the newest commit; a message makes it an annotated tag. An existing tag is moved.
func (r *Repo) Tag(ctx context.Context, name, message string) error {
	args := []string{"tag", "--force", name, "refs/heads/" + r.branch}
	if message != "" {
		args = []string{"tag", "--force", "--annotate", "--message", message, name, "refs/heads/" + r.branch}
	}
	_, err := run(ctx, r.dir, nil, args...)
	return err
}

// Push pushes full refs, or the branch if none are given.
func (r *Repo) Push(ctx context.Context, refs ...string) error { return r.push(ctx, "", refs) }

// ForcePush is Push with --force.
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

// run runs git in the bare repository dir ("" for none) without the configuration of the user.
func run(ctx context.Context, dir string, stdin *bytes.Buffer, args ...string) (string, error) {
	if dir != "" {
		args = append([]string{"--git-dir=" + dir}, args...)
	}
	cmd := exec.CommandContext(ctx, "git", args...)
	// Variables of a git process that runs this one, such as GIT_DIR of a hook, must not reach it.
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
