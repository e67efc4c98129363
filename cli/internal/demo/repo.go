package demo

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed sample
var sample embed.FS

// repository is a bare Git repository with a working copy beside it that a person can edit and push.
type repository struct {
	bare, work string
}

// newRepository makes both below dir, with the sample application as the first commit.
func newRepository(ctx context.Context, dir string) (*repository, error) {
	r := &repository{bare: filepath.Join(dir, "sample.git"), work: filepath.Join(dir, "sample")}
	if err := git(ctx, dir, "init", "--quiet", "--bare", "--initial-branch=main", r.bare); err != nil {
		return nil, err
	}
	if err := git(ctx, dir, "init", "--quiet", "--initial-branch=main", r.work); err != nil {
		return nil, err
	}
	if err := copySample(r.work); err != nil {
		return nil, fmt.Errorf("writing the sample application: %w", err)
	}
	for _, args := range [][]string{
		{"config", "user.name", "Kedge demo"}, {"config", "user.email", "demo@kedge.dev"}, {"config", "commit.gpgsign", "false"},
		// A person pushes here with a configuration of their own.
		{"config", "push.default", "simple"}, {"config", "core.hooksPath", ".git/hooks"},
		{"remote", "add", "origin", r.bare}, {"add", "--all"}, {"commit", "--quiet", "-m", "add the sample application"},
		{"push", "--quiet", "--set-upstream", "origin", "main"},
	} {
		if err := git(ctx, r.work, args...); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *repository) url() string { return "file://" + r.bare }

// installHook makes every push call the server's webhook, as a Git host would. The secret is in a
// file beside the hook, not on a command line that others can read.
func (r *repository) installHook(kedge, url, secret string) error {
	secretFile := filepath.Join(r.bare, "kedge-webhook-secret")
	if err := os.WriteFile(secretFile, []byte(secret), 0o600); err != nil {
		return err
	}
	hook := fmt.Sprintf("#!/bin/sh\nwhile read -r old new ref; do\n  %s demo notify --url %s --secret-file %s \"$ref\" || true\ndone\n",
		quote(kedge), quote(url), quote(secretFile))
	return os.WriteFile(filepath.Join(r.bare, "hooks", "post-receive"), []byte(hook), 0o700) //nolint:gosec // a hook has to be executable
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func copySample(dir string) error {
	files, err := fs.Sub(sample, "sample")
	if err != nil {
		return err
	}
	return os.CopyFS(dir, files)
}

func git(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	// A user's own configuration (signing, hooks, templates) has no say in the demo.
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
