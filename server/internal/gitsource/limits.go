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
	MinMemory = 48 << 20
	// ProcessesPerFetch is how many processes of one fetch may have as much memory as the limit allows at the same time:
	// git fetch itself, and the index-pack or the pack-objects that it starts.
	ProcessesPerFetch = 2
	// A process that reads mirrors has half of the memory of git, between these bounds, and more only where git has very
	// much. It holds one file at a time, of at most 16 MiB, and the file that it is stored as a difference to.
	minReaderMemory, usualReaderMemory = 32 << 20, 64 << 20
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

// ReaderMemory is what each process that reads mirrors may have where a process of git may have so much.
func ReaderMemory(memory int64) int64 {
	return max(min(max(memory/2, minReaderMemory), usualReaderMemory), memory/8)
}

// limited returns a command line that runs another within the limits.
func (g *git) limited(name string, args ...string) []string {
	return g.limitedTo(g.memory, name, args...)
}

func (g *git) limitedTo(memory int64, name string, args ...string) []string {
	kib := func(n int64) string { return strconv.FormatInt(n>>10, 10) }
	return append([]string{g.shell, "-c", limitScript, "sh", kib(memory), kib(memory + mapped), name}, args...)
}

// readerArgs keep what a reader holds in memory for speed well below its limit.
func (g *git) readerArgs() []string {
	return []string{"-c", "core.deltaBaseCacheLimit=" + strconv.FormatInt(ReaderMemory(g.memory)/8, 10)}
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
// not count, unless it is a process of ours, as for file://.
func (e *exitError) outOfMemory(ownRemote bool) bool {
	var exit *exec.ExitError
	if errors.As(e.err, &exit) && exit.String() == "signal: killed" {
		return true // not by us: the context would have ended
	}
	return saysExhausted(e.stderr, ownRemote)
}

func saysExhausted(stderr string, ownRemote bool) bool {
	for line := range strings.Lines(stderr) {
		if (ownRemote || !strings.HasPrefix(line, "remote:")) && containsAny(line, exhausted) {
			return true
		}
	}
	return false
}

// needsMemory is the error for users, of a process that had so much.
func (r *mirror) needsMemory(memory int64) error {
	return &RemoteError{
		URL: r.url, Problem: fmt.Sprintf("reading the repository needs more than %s of memory, the limit of this server for git: "+
			"it holds a commit, a folder or a file that is too large; remove that from the revision that is deployed, "+
			"or let the operator of the server raise --git-memory", sizeText(memory)),
		cause: errMemory,
	}
}
