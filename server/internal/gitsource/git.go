package gitsource

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	maxStderr = 16 << 10
	maxStdout = 16 << 20
)

// git runs the git program isolated from the user that the server runs as.
type git struct {
	path   string
	shell  string
	env    []string
	home   string // an empty folder
	memory int64  // memory limit of each process, in bytes
}

// gitConfig is the only configuration that git sees. It is a file because -c arguments do not reach the processes
// that git starts for a file:// remote.
const gitConfig = `[safe]
	# Git checks the owner of a file:// remote. That is not needed here: nothing of a remote is ever run.
	directory = *
	bareRepository = explicit
[protocol]
	version = 2
[transfer]
	# Objects are checked while they are received. Git keeps each fetch as a separate pack.
	fsckObjects = true
[fetch]
	writeCommitGraph = false
	recurseSubmodules = false
[fetch "fsck"]
	# Old tools wrote these errors into many repositories.
	zeroPaddedFilemode = ignore
	missingSpaceBeforeDate = ignore
	badTimezone = ignore
	missingEmail = ignore
	missingNameBeforeEmail = ignore
[core]
	# A mirror is a cache: the server recreates one that a power failure damaged.
	fsync = none
	hooksPath = /dev/null
	logAllRefUpdates = false
[gc]
	auto = 0
[maintenance]
	auto = false
[pack]
	threads = 1
[http]
	# The environment of each run sets its proxy and the secret for it.
	proxyAuthMethod = basic
	followRedirects = false
	lowSpeedLimit = 1
	lowSpeedTime = 60
[submodule]
	recurse = false
`

func newGit(cfg Config) (*git, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("finding git: %w", err)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		return nil, fmt.Errorf("finding sh, which limits the memory of git: %w", err)
	}
	g := &git{path: path, shell: shell, home: filepath.Join(cfg.Dir, "home"), memory: cfg.Memory}
	if err := os.MkdirAll(g.home, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of mirrors: %w", err)
	}
	config := filepath.Join(cfg.Dir, "gitconfig")
	if err := os.WriteFile(config, []byte(gitConfig+memoryConfig(cfg.Memory)), 0o600); err != nil {
		return nil, fmt.Errorf("configuring git: %w", err)
	}
	g.env = append(inherited(),
		"HOME="+g.home,
		"XDG_CONFIG_HOME="+g.home,
		"LC_ALL=C", // for the tables of messages
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL="+config,
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=",
		"SSH_ASKPASS=",
		"GIT_ALLOW_PROTOCOL=", // none; a run against a remote sets its own
		"GIT_CEILING_DIRECTORIES="+cfg.Dir,
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1",
	)
	return g, g.checkVersion()
}

// inherited returns the few variables that git shares with the server. None of them configures the network.
func inherited() []string {
	var out []string
	for _, name := range []string{"PATH", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	return out
}

func (g *git) checkVersion() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := g.run(ctx, "", "version")
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(out, "git version %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("reading the version of git from %q: %w", strings.TrimSpace(out), err)
	}
	if major < 2 || (major == 2 && minor < 36) {
		return fmt.Errorf("git %d.%d is too old: version 2.36 or later is required", major, minor)
	}
	return nil
}

// command returns a command that runs git on the repository dir, or on none if dir is "". Arguments from users
// must follow the argument that ends options.
func (g *git) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	if dir != "" {
		args = append([]string{"--git-dir=" + dir}, args...)
	}
	return g.isolated(ctx, g.limited(g.path, args...))
}

// readerCommand returns the command of a process that reads a mirror.
func (g *git) readerCommand(dir string) *exec.Cmd {
	args := append(g.readerArgs(), "--git-dir="+dir, "cat-file", "--batch-command")
	return g.isolated(context.Background(), g.limitedTo(ReaderMemory(g.memory), g.path, args...))
}

func (g *git) isolated(ctx context.Context, line []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = g.env
	cmd.Dir = g.home
	// git starts other processes (remote helpers, index-pack): kill all of them together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// gitCall is one run of git.
type gitCall struct {
	dir    string // the repository; "" for none
	args   []string
	stdin  io.Reader   // nil for none
	env    []string    // in addition to the environment of every run
	config []setting   // in addition to gitConfig
	conn   *connection // the connection to a remote; nil for none
	stderr *string     // receives the standard error of a successful run, if not nil
}

// setting is one entry of git's configuration.
type setting struct{ key, value string }

// settingsEnv passes configuration in the environment, because other users can read the command line. The
// processes that git starts inherit it.
func settingsEnv(settings []setting) []string {
	out := []string{"GIT_CONFIG_COUNT=" + strconv.Itoa(len(settings))}
	for i, s := range settings {
		out = append(out, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.value))
	}
	return out
}

// run runs git and returns its standard output. It returns an *exitError or the error of ctx. It cannot reach a
// remote.
func (g *git) run(ctx context.Context, dir string, args ...string) (string, error) {
	return g.do(ctx, gitCall{dir: dir, args: args})
}

// do is run with more options.
func (g *git) do(ctx context.Context, c gitCall) (string, error) {
	p := cmp.Or(c.conn, &connection{})
	cmd := g.command(ctx, c.dir, c.args...)
	cmd.Env = slices.Concat(g.env, c.env, settingsEnv(slices.Concat(c.config, p.config)), []string{"GIT_ALLOW_PROTOCOL=" + p.transport})
	cmd.ExtraFiles, cmd.Stdin = p.files, c.stdin
	stdout, stderr := &tail{limit: maxStdout}, &tail{limit: maxStderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Start()
	p.closeFiles()
	if err == nil {
		err = cmd.Wait()
	}
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		return "", fmt.Errorf("running git %s: %w", c.args[0], ctxErr)
	}
	if err != nil {
		return stdout.String(), &exitError{command: c.args[0], stderr: stderr.String(), err: err}
	}
	if stdout.truncated {
		return "", fmt.Errorf("running git %s: %w", c.args[0], errOutputTooLarge)
	}
	if c.stderr != nil {
		*c.stderr = stderr.String()
	}
	return stdout.String(), nil
}

var errOutputTooLarge = errors.New("the output is too large")

// tail keeps the last limit bytes of what is written to it.
type tail struct {
	limit     int
	buf       bytes.Buffer
	truncated bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf.Write(p)
	if extra := t.buf.Len() - t.limit; extra > 0 {
		t.buf.Next(extra)
		t.truncated = true
	}
	return len(p), nil
}

func (t *tail) String() string { return t.buf.String() }
