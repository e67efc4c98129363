package server

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/machine"
)

func memoryOf(bytes int64) machine.Memory { return machine.Memory{Bytes: bytes, Source: "a test"} }

// covers: T11
func TestMemoryIsDividedByWhatThereIs(t *testing.T) {
	t.Parallel()
	const mib, gib = 1 << 20, 1 << 30
	tests := map[string]struct {
		limit   int64
		cores   int
		render  RenderConfig
		git     GitResources
		renders share
		gits    share // fetches
		readers share
	}{
		"a very small pod":     {limit: 512 * mib, cores: 4, renders: share{1, 128 * mib}, gits: share{1, 48 * mib}, readers: share{1, 32 * mib}},
		"a small pod":          {limit: 1 * gib, cores: 4, renders: share{2, gib * 45 / 300}, gits: share{2, 48 * mib}, readers: share{2, 32 * mib}},
		"a usual pod":          {limit: 4 * gib, cores: 4, renders: share{2, 4 * gib * 45 / 300}, gits: share{4, 96 * mib}, readers: share{5, 48 * mib}},
		"a large machine":      {limit: 64 * gib, cores: 4, renders: share{16, gib}, gits: share{12, 512 * mib}, readers: share{64, 64 * mib}},
		"renders given":        {limit: 8 * gib, cores: 4, render: RenderConfig{Processes: 2, Memory: 512 * mib}, renders: share{2, 512 * mib}, gits: share{6, 128 * mib}, readers: share{8, 64 * mib}},
		"memory given":         {limit: 8 * gib, cores: 4, render: RenderConfig{Memory: 2 * gib}, renders: share{1, 2 * gib}, gits: share{6, 128 * mib}, readers: share{8, 64 * mib}},
		"processes given":      {limit: 8 * gib, cores: 4, render: RenderConfig{Processes: 4}, renders: share{4, 8 * gib * 45 / 400}, gits: share{6, 128 * mib}, readers: share{8, 64 * mib}},
		"git given":            {limit: 8 * gib, cores: 4, git: GitResources{Processes: 4, Memory: 100 * mib}, renders: share{3, gib}, gits: share{4, 100 * mib}, readers: share{10, 50 * mib}},
		"more git than usual":  {limit: 8 * gib, cores: 4, git: GitResources{Processes: 100}, renders: share{3, 8 * gib * 45 / 400}},
		"more than fits":       {limit: 2 * gib, cores: 4, render: RenderConfig{Processes: 16, Memory: gib}},
		"git more than fits":   {limit: 2 * gib, cores: 4, git: GitResources{Processes: 32, Memory: 512 * mib}},
		"too little for all":   {limit: 300 * mib, cores: 1},
		"too little for these": {limit: 1 * gib, cores: 4, render: RenderConfig{Memory: gib}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := planMemory(memoryOf(c.limit), c.render, c.git, c.cores)
			if c.renders.processes == 0 || c.gits.processes == 0 {
				if err == nil {
					t.Fatalf("got %+v, want an error", p)
				}
				for _, part := range []string{"--render-processes", "--git-memory", "a test", mebibytes(c.limit)} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not name %q", err, part)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.renders != c.renders {
				t.Errorf("got renders %+v, want %+v", p.renders, c.renders)
			}
			if p.git != c.gits {
				t.Errorf("got runs of git %+v, want %+v", p.git, c.gits)
			}
			if p.readers != c.readers {
				t.Errorf("got readers %+v, want %+v", p.readers, c.readers)
			}
			// The kernel limit of all of them together: a fetch is git and its child processes.
			allowed := int64(p.renders.processes)*p.renders.memory + int64(p.idle)*p.renders.memory/2 +
				2*int64(p.git.processes)*p.git.memory + int64(p.readers.processes)*p.readers.memory
			if allowed+minServer > c.limit || allowed != p.children() {
				t.Errorf("the processes may have %d bytes together, planned are %d of %d", allowed, p.children(), c.limit)
			}
			if p.needed() > c.limit || p.heap() < minServer/10*9 {
				t.Errorf("%d bytes are needed of %d, %d for the heap", p.needed(), c.limit, p.heap())
			}
		})
	}
}

// covers: T11
func TestConfigurationThatCannotHoldIsRefused(t *testing.T) {
	t.Parallel()
	limit := func() (machine.Memory, error) { return memoryOf(2 << 30), nil }
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]struct {
		cfg  Config
		says string
	}{
		"renders":      {Config{Log: log, Render: RenderConfig{Processes: 64, Memory: 1 << 30}}, "only 2048 MiB are available (a test)"},
		"git":          {Config{Log: log, GitResources: GitResources{Processes: 64, Memory: 1 << 30}}, "only 2048 MiB are available (a test)"},
		"least of git": {Config{Log: log, GitResources: GitResources{Memory: 1 << 20}}, "--git-memory"},
		"no number":    {Config{Log: log, Render: RenderConfig{Processes: -1}}, "--render-processes"},
	} {
		if _, err := c.cfg.withMemory(limit); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got error %v, want an error with %q", name, err, c.says)
		}
	}
	unknown := func() (machine.Memory, error) { return machine.Memory{}, machine.ErrUnknown }
	if _, err := (Config{Log: log}).withMemory(unknown); err != nil {
		t.Errorf("with unknown memory: %v", err)
	}
	broken := errors.New("broken")
	if _, err := (Config{Log: log}).withMemory(func() (machine.Memory, error) { return machine.Memory{}, broken }); !errors.Is(err, broken) {
		t.Errorf("got error %v", err)
	}
}
