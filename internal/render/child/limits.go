package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render"
)

// Limits bound one render. Zero fields mean the default.
type Limits struct {
	Time   time.Duration // from its start until the last object; default 30 s
	Memory int64         // of the process, in bytes; default 1 GiB
	Output int64         // of all objects as JSON, in bytes; default 64 MiB
}

// MinMemory is the least that a child can do with: Go itself and the libraries take that much.
const MinMemory = 128 << 20

func (l Limits) orDefault() Limits {
	return Limits{
		Time:   cmp.Or(l.Time, 30*time.Second),
		Memory: cmp.Or(l.Memory, 1<<30),
		Output: cmp.Or(l.Output, 64<<20),
	}
}

// Check refuses limits with which nothing could be rendered.
func (l Limits) Check() error {
	l = l.orDefault()
	switch {
	case l.Time < time.Second:
		return fmt.Errorf("a limit of %v for the time of a render is less than the least possible, 1s", l.Time)
	case l.Memory < MinMemory:
		return fmt.Errorf("a limit of %s for the memory of a render is less than the least possible, %s", bytesText(l.Memory), bytesText(MinMemory))
	case l.Output < 1<<10:
		return fmt.Errorf("a limit of %s for the output of a render is less than the least possible, 1 KiB", bytesText(l.Output))
	}
	return nil
}

// cpu is what a child may use in its whole life: what many renders need, and no more than that should its
// parent ever forget it.
func (l Limits) cpu() time.Duration { return 10 * processors * l.Time }

// errTime is the cause of a context whose render took too long.
var errTime = errors.New("the time for a render is over")

// The mistakes that a limit makes of a render. Each says which limit, how large it is and what to do.

func (l Limits) timeError(path string) error {
	return passing(path, "rendering it took longer than %v, the limit for one render, and was stopped: look for a loop or a very large range in its templates, "+
		"split it into several deployments, or raise the limit (--render-timeout)", l.Time)
}

func (l Limits) memoryError(path string) error {
	return mistake(path, "rendering it needed more than %s of memory, the limit for one render, and was stopped: look for YAML aliases or loops that multiply, "+
		"split it into several deployments, or raise the limit (--render-memory)", bytesText(l.Memory))
}

func (l Limits) outputError(path string) error {
	return mistake(path, "its objects are larger than %s together, the limit for one render, and it was stopped: split it into several deployments, "+
		"or raise the limit (--render-output)", bytesText(l.Output))
}

func objectError(path string) error {
	return mistake(path, "one of its objects is larger than %s, the limit for one object: Kubernetes would not take it", bytesText(manifest.MaxFile))
}

func objectsError(path string, most int) error {
	return mistake(path, "it has more than the %d objects that are allowed: split it into several deployments", most)
}

func valuesError(path string) error {
	return mistake(path, "its objects have more than the %d values that are allowed together: split it into several deployments", manifest.MaxValues)
}

func mistake(path, format string, args ...any) error {
	return &render.Error{Path: path, Problem: fmt.Sprintf(format, args...)}
}

// passing is a mistake that may be none on a machine that has less to do.
func passing(path, format string, args ...any) error {
	return &render.Error{Path: path, Problem: fmt.Sprintf(format, args...), Transient: true}
}

// deathError says why a child ended that nobody ended, from the last that it wrote.
func (l Limits) deathError(path, how, stderr string) error {
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(stderr, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("out of memory", "cannot allocate memory", "cannot map pages"):
		return l.memoryError(path)
	case has("stack exceeds", "stack overflow"):
		return mistake(path, "rendering it went too deep and was stopped: look for a template or a reference that includes itself")
	case has("failed to create new OS thread"):
		return passing(path, "the process that rendered it was given no thread by the system: there are too many processes; raise the limit of the server's user or container")
	case has("thread exhaustion"):
		return passing(path, "rendering it started too many threads and was stopped")
	case how == "signal: killed":
		return passing(path, "the process that rendered it was killed by the system, most likely because the machine or the container had no memory left: "+
			"split it into several deployments, lower --render-memory or --render-processes, or give the server more memory")
	}
	first, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	return passing(path, "the process that rendered it crashed (%s): %s: this input breaks the renderer; change it, and please report it", how, clean(cmp.Or(first, "it said nothing"), 300))
}

// interrupted says why the context of a render ended.
func (l Limits) interrupted(ctx context.Context, path string) error {
	if errors.Is(context.Cause(ctx), errTime) {
		return l.timeError(path)
	}
	return fmt.Errorf("rendering %q: %w", path, context.Cause(ctx))
}
