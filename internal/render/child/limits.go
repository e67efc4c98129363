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

// Limits are the limits of one render. Zero fields mean the default.
type Limits struct {
	Time   time.Duration // from the start to the last object; default 30 s
	Memory int64         // memory of the process in bytes; default 1 GiB
	Output int64         // size of all objects as JSON, in bytes; default 64 MiB
}

// MinMemory is the minimum memory of a child: Go and the libraries need that much.
const MinMemory = 128 << 20

func (l Limits) orDefault() Limits {
	return Limits{
		Time:   cmp.Or(l.Time, 30*time.Second),
		Memory: cmp.Or(l.Memory, 1<<30),
		Output: cmp.Or(l.Output, 64<<20),
	}
}

// Check refuses limits that are too low for any render.
func (l Limits) Check() error {
	l = l.orDefault()
	switch {
	case l.Time < time.Second:
		return fmt.Errorf("the time limit of a render is %v, but must be at least 1s", l.Time)
	case l.Memory < MinMemory:
		return fmt.Errorf("the memory limit of a render is %s, but must be at least %s", bytesText(l.Memory), bytesText(MinMemory))
	case l.Output < 1<<10:
		return fmt.Errorf("the output limit of a render is %s, but must be at least 1 KiB", bytesText(l.Output))
	}
	return nil
}

// cpu is the CPU time that a child may use in its lifetime: sufficient for many renders, and a limit if its
// parent forgets it.
func (l Limits) cpu() time.Duration { return 10 * processors * l.Time }

// errTime is the cause of a context whose render took too long.
var errTime = errors.New("the time for a render is over")

// The user errors for exceeded limits. Each has the limit, its value, and the remedy.

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
	return mistake(path, "one of its objects is larger than %s, the limit for one object: Kubernetes would refuse it", bytesText(manifest.MaxFile))
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

// passing is a user error that may not occur on a less busy machine.
func passing(path, format string, args ...any) error {
	return &render.Error{Path: path, Problem: fmt.Sprintf(format, args...), Transient: true}
}

// deathError returns why a child ended by itself, from the end of its output.
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
		return mistake(path, "the render exceeded the recursion limit and was stopped: look for a template or a reference that includes itself")
	case has("failed to create new OS thread"):
		return passing(path, "the render process could not create a thread because there are too many processes: raise the limit of the user or container of the server")
	case has("thread exhaustion"):
		return passing(path, "the render started too many threads and was stopped")
	case how == "signal: killed":
		return passing(path, "the render process was killed by the system, most likely because the machine or the container had no memory left: "+
			"split it into several deployments, lower --render-memory or --render-processes, or give the server more memory")
	}
	first, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	return passing(path, "the render process crashed (%s): %s: this input breaks the renderer; change it, and please report it", how, clean(cmp.Or(first, "no output"), 300))
}

// interrupted returns why the context of a render ended.
func (l Limits) interrupted(ctx context.Context, path string) error {
	if errors.Is(context.Cause(ctx), errTime) {
		return l.timeError(path)
	}
	return fmt.Errorf("rendering %q: %w", path, context.Cause(ctx))
}
