package server

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"

	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/machine"
)

const (
	// minServer is the memory of the server without child processes.
	minServer = 192 << 20
	// Shares of the memory, in percent: renderShare for renders and gitShare for git. The server has the rest.
	renderShare, gitShare = 45, 25

	maxRenderMemory, maxGitMemory = 1 << 30, 512 << 20
	// maxGitProcesses is for very many tenants with a hanging host, and usualGitProcesses for the normal case.
	maxGitProcesses, usualGitProcesses = 512, 64
	// leastFetches is the minimum so that a hanging host of one tenant does not block others. If there is
	// enough memory, there are usualFetches, with at least enoughGitMemory each, which the trees of large
	// repositories need.
	leastFetches, usualFetches, enoughGitMemory = 4, 8, 128 << 20
	// Of the memory of git, in percent, readerShare is for the processes that read mirrors. There are at most
	// maxReaders of them.
	readerShare, maxReaders = 25, 64
)

// share is a number of processes with a memory limit each.
type share struct {
	processes int
	memory    int64 // of each, in bytes
}

// memoryPlan divides the available memory between the server and its child processes, so that all together
// cannot exceed it: if a control group is killed as a whole, a render or a fetch would end the server too.
type memoryPlan struct {
	limit   machine.Memory
	renders share
	idle    int   // idle render processes, with at most half of that memory each
	git     share // fetches: each has gitsource.ProcessesPerFetch processes
	readers share // open processes that read mirrors
}

// planMemory divides limit. Configured values stay unchanged, and are an error if they do not fit.
func planMemory(limit machine.Memory, r RenderConfig, g GitResources, processors int) (memoryPlan, error) {
	p := memoryPlan{limit: limit}
	part := func(percent int64) int64 { return limit.Bytes * percent / 100 }
	p.renders = planRenders(part(renderShare), r, processors)
	p.idle = idleOf(p.renders.processes)
	p.git, p.readers = planGit(part(gitShare), g)
	if p.needed() > limit.Bytes {
		return p, p.tooMuch()
	}
	return p, nil
}

func planRenders(bytes int64, r RenderConfig, processors int) share {
	most := 4 * max(2, processors)
	out := share{r.Processes, r.Memory}
	switch {
	case out.processes == 0 && out.memory == 0:
		out.memory = min(max(bytes/3, child.MinMemory), maxRenderMemory)
	case out.memory == 0:
		out.memory = min(max(bytes/int64(out.processes), child.MinMemory), maxRenderMemory)
	}
	if out.processes == 0 {
		for most > 1 && int64(most)*out.memory+int64(idleOf(most))*out.memory/2 > bytes {
			most--
		}
		out.processes = most
	}
	return out
}

// idleOf returns the number of idle render processes for a number of concurrent renders.
func idleOf(processes int) int { return min(4, max(1, processes/2)) }

// planGit divides bytes between fetches and the processes that read mirrors.
func planGit(bytes int64, g GitResources) (fetches, readers share) {
	const perFetch = gitsource.ProcessesPerFetch
	left := bytes - bytes*readerShare/100
	fetches = share{g.Processes, g.Memory}
	switch {
	case fetches.memory != 0:
	case fetches.processes != 0:
		fetches.memory = min(max(left/perFetch/int64(fetches.processes), gitsource.MinMemory), maxGitMemory)
	default:
		enough := min(left/perFetch/leastFetches, enoughGitMemory)
		fetches.memory = min(max(left/perFetch/usualFetches, enough, gitsource.MinMemory), maxGitMemory)
	}
	if fetches.processes == 0 {
		fetches.processes = int(min(max(left/perFetch/fetches.memory, 1), maxGitProcesses))
	}
	readers.memory = gitsource.ReaderMemory(fetches.memory)
	readers.processes = int(min(max(bytes*readerShare/100/readers.memory, 1), maxReaders))
	return fetches, readers
}

// children returns the memory of all child processes.
func (p memoryPlan) children() int64 {
	return int64(p.renders.processes)*p.renders.memory + int64(p.idle)*p.renders.memory/2 +
		int64(p.git.processes)*gitsource.ProcessesPerFetch*p.git.memory + int64(p.readers.processes)*p.readers.memory
}

func (p memoryPlan) needed() int64 { return minServer + p.children() }

// tooMuch returns an error with the values that do not fit, and the remedy.
func (p memoryPlan) tooMuch() error {
	return fmt.Errorf("the configuration needs more memory than available: %d renders of %s (--render-processes, --render-memory), "+
		"%d idle render processes with half of that, %d fetches with %d processes of %s each (--git-processes, --git-memory), "+
		"%d readers of mirrors of %s and %s for the server itself need %s, "+
		"but only %s are available (%s): lower one of these or give the server more memory",
		p.renders.processes, mebibytes(p.renders.memory), p.idle, p.git.processes, gitsource.ProcessesPerFetch, mebibytes(p.git.memory),
		p.readers.processes, mebibytes(p.readers.memory), mebibytes(minServer), mebibytes(p.needed()),
		mebibytes(p.limit.Bytes), p.limit.Source)
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// heap returns the soft limit of the server's heap: the rest, without the memory of the database and the
// system.
func (p memoryPlan) heap() int64 { return (p.limit.Bytes - p.children()) / 10 * 9 }

// withMemory sets the numbers of processes and their limits from the available memory, and limits the heap of
// this process unless $GOMEMLIMIT does.
func (c Config) withMemory(limit func() (machine.Memory, error)) (Config, error) {
	found, err := limit()
	if errors.Is(err, machine.ErrUnknown) {
		c.Log.Warn("the available memory is unknown: renders and git have no common limit")
		return c, nil
	}
	if err != nil {
		return c, err
	}
	switch {
	case c.Render.Processes < 0 || c.GitResources.Processes < 0:
		return c, errors.New("--render-processes and --git-processes must be at least 1")
	case c.GitResources.Memory != 0 && c.GitResources.Memory < gitsource.MinMemory:
		return c, fmt.Errorf("--git-memory: git needs at least %s", mebibytes(gitsource.MinMemory))
	}
	plan, err := planMemory(found, c.Render, c.GitResources, runtime.GOMAXPROCS(0))
	if err != nil {
		return c, err
	}
	c.Render.Processes, c.Render.Memory, c.Render.idle = plan.renders.processes, plan.renders.memory, plan.idle
	c.GitResources.Processes, c.GitResources.Memory, c.GitResources.readers = plan.git.processes, plan.git.memory, plan.readers.processes
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(plan.heap())
	}
	c.Log.Info("memory plan", "limit", mebibytes(found.Bytes), "limitFrom", found.Source, "heap", mebibytes(debug.SetMemoryLimit(-1)),
		slog.Group("renders", "processes", plan.renders.processes, "memory", mebibytes(plan.renders.memory)),
		slog.Group("git", "fetches", plan.git.processes, "memory", mebibytes(plan.git.memory)),
		slog.Group("readers", "processes", plan.readers.processes, "memory", mebibytes(plan.readers.memory)))
	return c, nil
}
