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

// git runs the git program apart from the user that the server runs as.
type git struct {
	path   string
	shell  string
	env    []string
	home   string // an empty folder
	memory int64  // that each process may have, in bytes
}

// gitConfig is the only configuration that git sees. It is a file, not a list of -c arguments,
// because those do not reach the processes that git starts for a file:// remote.
const gitConfig = `[safe]
	# Readers of file:// remotes check who owns them; nothing of a remote is ever run.
	directory = *
	bareRepository = explicit
[protocol]
	version = 2
[transfer]
	# Objects are checked as they come, for which git keeps each fetch as a pack of its own.
	fsckObjects = true
[fetch]
	writeCommitGraph = false
	recurseSubmodules = false
[fetch "fsck"]
	# Old tools wrote these into many honest histories.
	zeroPaddedFilemode = ignore
	missingSpaceBeforeDate = ignore
	badTimezone = ignore
	missingEmail = ignore
	missingNameBeforeEmail = ignore
[core]
	# A mirror is a cache: one that a power failure damaged is made anew.
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
	# The proxy of each run is set in its environment, with a secret that only basic carries at once.
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
		return nil, fmt.Errorf("finding sh, which bounds the memory of git: %w", err)
	}
	g := &git{path: path, shell: shell, home: filepath.Join(cfg.Dir, "home"), memory: cfg.Memory}
	if err := os.MkdirAll(g.home, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of mirrors: %w", err)
	}
	config := filepath.Join(cfg.Dir, "gitconfig")
	if err := os.WriteFile(config, []byte(gitConfig+memoryConfig(cfg.Memory)), 0o600); err != nil {
		return nil, fmt.Errorf("configuring git: %w", err)
	}
	g.env = append(inherited(),
		"HOME="+g.home,
		"XDG_CONFIG_HOME="+g.home,
		"LC_ALL=C", // the texts of errors are read
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL="+config,
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=",
		"SSH_ASKPASS=",
		"GIT_ALLOW_PROTOCOL=", // none; a run against a remote gets its own
		"GIT_CEILING_DIRECTORIES="+cfg.Dir,
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1",
	)
	return g, g.checkVersion()
}

// inherited returns the few variables that git shares with the server. None of them say how to get
// out: that is the business of a route.
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
		return fmt.Errorf("git %d.%d is too old: 2.36 or newer is needed", major, minor)
	}
	return nil
}

// command prepares git on the repository dir, or on none when it is "". Nothing that a user wrote
// may come before the arguments that end options.
func (g *git) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	if dir != "" {
		args = append([]string{"--git-dir=" + dir}, args...)
	}
	return g.confined(ctx, g.limited(g.path, args...))
}

// readerCommand prepares the process that reads a mirror.
func (g *git) readerCommand(dir string) *exec.Cmd {
	args := append(g.readerArgs(), "--git-dir="+dir, "cat-file", "--batch-command")
	return g.confined(context.Background(), g.limitedTo(ReaderMemory(g.memory), g.path, args...))
}

func (g *git) confined(ctx context.Context, line []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = g.env
	cmd.Dir = g.home
	// git starts others (remote helpers, index-pack): all of them end together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// call is one run of git.
type call struct {
	dir     string // the repository, "" for none
	args    []string
	stdin   io.Reader // nil for none
	env     []string  // beside that of every run
	config  []setting // beside gitConfig
	through *passage  // the way to a remote; nil when it needs none
	said    *string   // gets what git and the remote have said beside, when all went well; nil for nobody
}

// setting is one entry of git's configuration.
type setting struct{ key, value string }

// settingsEnv puts configuration into the environment, which other users cannot read, and not on the
// command line. git hands it on to the processes that it starts.
func settingsEnv(settings []setting) []string {
	out := []string{"GIT_CONFIG_COUNT=" + strconv.Itoa(len(settings))}
	for i, s := range settings {
		out = append(out, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.value))
	}
	return out
}

// run runs git to its end and returns what it wrote. A failure is an *exitError or that of ctx. It
// can reach no remote.
func (g *git) run(ctx context.Context, dir string, args ...string) (string, error) {
	return g.do(ctx, call{dir: dir, args: args})
}

// do is run for calls that need more than arguments.
func (g *git) do(ctx context.Context, c call) (string, error) {
	p := cmp.Or(c.through, &passage{})
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
	if stdout.cut {
		return "", fmt.Errorf("running git %s: %w", c.args[0], errTooMuch)
	}
	if c.said != nil {
		*c.said = stderr.String()
	}
	return stdout.String(), nil
}

var errTooMuch = errors.New("it wrote more than is read")

// tail keeps the last limit bytes that are written to it.
type tail struct {
	limit int
	buf   bytes.Buffer
	cut   bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf.Write(p)
	if extra := t.buf.Len() - t.limit; extra > 0 {
		t.buf.Next(extra)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) String() string { return t.buf.String() }
