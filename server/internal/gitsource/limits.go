package gitsource

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// defaultMemory is what one process of git may have. The trees of large repositories need about
	// 100 MiB; files are written to disk as they come.
	defaultMemory = 512 << 20
	// MinMemory is the least that git can do with.
	MinMemory = 64 << 20
	// mapped is how much git may map beside its memory: packs and their indexes, which the system can
	// drop at any time.
	mapped = 2 << 30
)

// limitScript starts a program with bounds that it, and what it starts, cannot raise. A bound that is lower
// already stays as it is. When memory is short the system ends git before it ends the server. git needs a
// shell itself; the server's own program would take twenty times as long to start.
const limitScript = `ulimit -c 0
ulimit -d "$1" 2>/dev/null
ulimit -v "$2" 2>/dev/null
{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
shift 2
exec "$@"`

// limited returns a command line that runs another within the limits.
func (g *git) limited(name string, args ...string) []string {
	kib := func(n int64) string { return strconv.FormatInt(n>>10, 10) }
	return append([]string{g.shell, "-c", limitScript, "sh", kib(g.memory), kib(g.memory + mapped), name}, args...)
}

// memoryConfig keeps what git holds in memory for speed well below the limit, and has it write large files
// to disk as they come.
func memoryConfig(memory int64) string {
	part := func(most int64) string { return strconv.FormatInt(min(most, memory/8), 10) }
	return `[core]
	packedGitWindowSize = ` + part(32<<20) + `
	packedGitLimit = ` + strconv.FormatInt(256<<20, 10) + `
	deltaBaseCacheLimit = ` + part(32<<20) + `
	bigFileThreshold = ` + part(16<<20) + `
[pack]
	windowMemory = ` + part(64<<20) + `
	deltaCacheSize = ` + part(32<<20) + `
[transfer]
	unpackLimit = 1
`
}

// checkLimits reports when the system does not bound the memory of git.
func (g *git) checkLimits() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	line := g.limited(g.shell, "-c", "ulimit -d")
	out, err := exec.CommandContext(ctx, line[0], line[1:]...).Output()
	if err != nil {
		return fmt.Errorf("asking for the limits of git: %w", err)
	}
	kib, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil || kib > g.memory>>10 {
		return fmt.Errorf("the system does not bound the memory of git: its limit is %s KiB", strings.TrimSpace(string(out)))
	}
	return nil
}

var errMemory = errors.New("git needed more memory than it may have")

// exhausted is what git says, itself or about a process that it has started, when there is no memory left.
var exhausted = []string{"Out of memory", "out of memory", "Cannot allocate memory", "mmap failed", "died of signal 9"}

// outOfMemory reports whether a run of git failed for want of memory. What the remote says of itself does
// not count.
func (e *exitError) outOfMemory() bool {
	var exit *exec.ExitError
	if errors.As(e.err, &exit) && exit.String() == "signal: killed" {
		return true // not by us: the context would have ended
	}
	for line := range strings.Lines(e.stderr) {
		if !strings.HasPrefix(line, "remote:") && containsAny(line, exhausted) {
			return true
		}
	}
	return false
}

// needsMemory is the error for users.
func (r *mirror) needsMemory() error {
	return &RemoteError{
		URL: r.url, Problem: fmt.Sprintf("reading the repository needs more than %s of memory, the limit of this server for git: "+
			"it holds a commit, a folder or a file that is too large; remove that from the revision that is deployed, "+
			"or let the operator of the server raise --git-memory", sizeText(r.git.memory)),
		cause: errMemory,
	}
}
