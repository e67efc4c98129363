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
	// defaultMemory is the default limit of one git process. Trees of large repositories need about 100 MiB.
	// Files are written to disk while they are received.
	defaultMemory = 512 << 20
	// MinMemory is the least memory that git works with.
	MinMemory = 48 << 20
	// ProcessesPerFetch is how many processes of one fetch may use the memory limit at the same time: git fetch,
	// and the index-pack or pack-objects that it starts.
	ProcessesPerFetch = 2
	// A process that reads mirrors has half of the memory limit of git, within these bounds, or an eighth if that
	// is more. It holds one file of at most 16 MiB at a time, and the file that it is stored as a delta of.
	minReaderMemory, usualReaderMemory = 32 << 20, 64 << 20
	// mappedMemory is how much git may map in addition to its memory: packs and their indexes, which the
	// operating system can drop at any time.
	mappedMemory = 2 << 30
)

// limitScript starts a program with limits that the program and its children cannot raise. A lower existing limit
// stays. When memory is short, the operating system kills git before the server. It is a shell script because git
// needs a shell anyway, and the server's own program would take twenty times as long to start.
const limitScript = `ulimit -c 0
ulimit -d "$1" 2>/dev/null
ulimit -v "$2" 2>/dev/null
{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
shift 2
exec "$@"`

// ReaderMemory returns the memory limit of each process that reads mirrors, given that of git.
func ReaderMemory(memory int64) int64 {
	return max(min(max(memory/2, minReaderMemory), usualReaderMemory), memory/8)
}

// limited returns a command line that runs another one with the limits.
func (g *git) limited(name string, args ...string) []string {
	return g.limitedTo(g.memory, name, args...)
}

func (g *git) limitedTo(memory int64, name string, args ...string) []string {
	kib := func(n int64) string { return strconv.FormatInt(n>>10, 10) }
	return append([]string{g.shell, "-c", limitScript, "sh", kib(memory), kib(memory + mappedMemory), name}, args...)
}

// readerArgs limits the cache of a reader to a part of its memory limit.
func (g *git) readerArgs() []string {
	return []string{"-c", "core.deltaBaseCacheLimit=" + strconv.FormatInt(ReaderMemory(g.memory)/8, 10)}
}

// memoryConfig limits the caches of git to a part of its memory limit, and makes git write large files to disk
// while it receives them.
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

// checkLimits returns an error if the operating system does not limit the memory of git.
func (g *git) checkLimits() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	line := g.limited(g.shell, "-c", "ulimit -d")
	out, err := exec.CommandContext(ctx, line[0], line[1:]...).Output()
	if err != nil {
		return fmt.Errorf("reading the limits of git: %w", err)
	}
	kib, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil || kib > g.memory>>10 {
		return fmt.Errorf("the operating system does not limit the memory of git: its limit is %s KiB", strings.TrimSpace(string(out)))
	}
	return nil
}

var errMemory = errors.New("git exceeded its memory limit")

// outOfMemoryTexts are messages of git about itself, or about a process that it started, when memory is
// exhausted.
var outOfMemoryTexts = []string{"Out of memory", "out of memory", "Cannot allocate memory", "mmap failed", "died of signal 9"}

// outOfMemory reports whether a run of git failed because memory was exhausted. Messages about the remote do not
// count, unless the remote is a process on this machine, as for file://.
func (e *exitError) outOfMemory(ownRemote bool) bool {
	var exit *exec.ExitError
	if errors.As(e.err, &exit) && exit.String() == "signal: killed" {
		return true // the server did not kill it: its context has not ended
	}
	return reportsOutOfMemory(e.stderr, ownRemote)
}

func reportsOutOfMemory(stderr string, ownRemote bool) bool {
	for line := range strings.Lines(stderr) {
		if (ownRemote || !strings.HasPrefix(line, "remote:")) && containsAny(line, outOfMemoryTexts) {
			return true
		}
	}
	return false
}

// memoryError returns the error for users of a process with that limit.
func (r *mirror) memoryError(memory int64) error {
	return &RemoteError{
		URL: r.url, Problem: fmt.Sprintf("reading the repository needs more than %s of memory, which is the limit for git on this server: "+
			"a commit, a folder or a file is too large; remove it from the deployed revision, "+
			"or ask the operator of the server to raise --git-memory", sizeText(memory)),
		cause: errMemory,
	}
}
