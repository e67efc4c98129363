//go:build linux

package child_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: G10 (what one tenant's input does to a process is never seen by another)
func TestAChildServesOneOwner(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	if _, err := pool.Probe(t.Context()); err != nil { // its child may serve any owner first
		t.Fatal(err)
	}
	for _, step := range []struct{ owner, what, want, reason string }{
		{"a", "who", "1", "the first build"},
		{"a", "who", "2", "the same owner finds its child again"},
		{"b", "who", "1", "another owner never does"},
		{"a", "who", "3", "the first child has waited"},
		{"a", "taint", "4", "this build changes the process"},
		{"a", "who", "1", "so it is not used again"},
	} {
		built, err := pool.Build(t.Context(), job(step.owner, step.what))
		if got := text(t, built, err); got != step.want {
			t.Fatalf("%s: the process of %s has done %s jobs, want %s", step.reason, step.owner, got, step.want)
		}
	}
}

func TestWhenAChildIsDiscarded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		cfg    child.Config
		before string // the build between two that report their process
		want   string
	}{
		{"a user error changes nothing", child.Config{}, "mistake", "2"},
		{"an error of unknown kind may have", child.Config{}, "fault", "1"},
		{"a child has a number of builds", child.Config{Builds: 2}, "mistake", "1"},
		{"a child that waited too long", child.Config{IdleFor: time.Millisecond}, "", "1"},
		{"no child may wait", child.Config{Idle: -1}, "mistake", "1"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, tt.cfg)
			built, err := pool.Build(t.Context(), job("a", "who"))
			if got := text(t, built, err); got != "1" {
				t.Fatalf("the first build says %s", got)
			}
			if tt.before != "" {
				if _, err := pool.Build(t.Context(), job("a", tt.before)); !render.IsUserError(err) {
					t.Fatal(err)
				}
			} else {
				awaitChildren(t, pool, 0)
			}
			built, err = pool.Build(t.Context(), job("a", "who"))
			if got := text(t, built, err); got != tt.want {
				t.Errorf("the next build is number %s of its process, want %s", got, tt.want)
			}
		})
	}
}

// covers: G10 (other renders are not delayed)
func TestABuildThatHangsDelaysNoOtherOwner(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{Processes: 3, PerOwner: 2, Limits: child.Limits{Time: time.Hour}})
	ctx, cancel := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	for range 5 { // three of them wait for their turn
		hanging.Go(func() {
			if _, err := pool.Build(ctx, job("hangs", "hang")); !errors.Is(err, context.Canceled) || render.IsUserError(err) {
				t.Errorf("a canceled build returned %v", err)
			}
		})
	}
	awaitChildren(t, pool, 2)
	for i := range 3 {
		built, err := pool.Build(t.Context(), job(fmt.Sprintf("other-%d", i), "who"))
		if text(t, built, err) != "1" {
			t.Error("the build of another owner has no result")
		}
	}
	began := time.Now()
	cancel()
	hanging.Wait()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("canceled builds ended after %v", took)
	}
}

func TestTwoBuildsAtOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 3 {
				built, err := pool.Build(t.Context(), job(fmt.Sprint(i%3), "who"))
				if err != nil || len(built.Objects) != 1 {
					t.Errorf("got %v, %v", built, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAChildThatDiedWhileItWaitedIsReplaced(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	if _, err := pool.Build(t.Context(), job("a", "who")); err != nil {
		t.Fatal(err)
	}
	for _, pid := range children(t, pool) {
		p, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	built, err := pool.Build(t.Context(), job("a", "who"))
	if got := text(t, built, err); got != "1" {
		t.Errorf("the build after says %s", got)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{Limits: child.Limits{Time: time.Hour}})
	if _, err := pool.Build(t.Context(), job("idle", "who")); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := pool.Build(t.Context(), job("busy", "hang"))
		failed <- err
	}()
	awaitChildren(t, pool, 2)
	pids := children(t, pool)
	pool.Close()
	if err := <-failed; err == nil || render.IsUserError(err) {
		t.Errorf("a running build ends with %v", err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	if _, err := pool.Build(t.Context(), job("late", "who")); err == nil || render.IsUserError(err) {
		t.Errorf("a build after Close returned %v", err)
	}
}

func TestAKilledParentLeavesNoChild(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentEnv+"="+program(t, hostilePkg))
	parent.Stderr = os.Stderr
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parent.Process.Kill(); _ = parent.Wait() })
	var pids []int
	testkit.Eventually(t, time.Minute, func(context.Context) error {
		if pids = childrenOf(t, parent.Process.Pid); len(pids) != 2 {
			return fmt.Errorf("there are %d children, want one that waits and one that hangs", len(pids))
		}
		return nil
	})
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func(context.Context) error {
		for _, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("process %d is still there", pid)
			}
		}
		return nil
	})
}

func TestStatusIsKnownAfterTheFirstChild(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{Off: []sandbox.Mechanism{sandbox.Landlock}})
	if _, ok := pool.Status(); ok {
		t.Error("it is known before")
	}
	if _, err := pool.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, ok := pool.Status()
	if reason, lacks := status.Lacks(sandbox.Landlock); !ok || !lacks || reason == "" {
		t.Errorf("got %+v, %t", status, ok)
	}
	if problem := status.Problem(); !strings.Contains(problem, "landlock (it was switched off)") || !strings.Contains(problem, "still block files and network") {
		t.Errorf("the problem reads %q", problem)
	}
}

// children are the processes of a pool, by the name that its program has.
func children(t *testing.T, pool *child.Pool) []int {
	t.Helper()
	name, ok := names.Load(pool)
	if !ok {
		t.Fatal("a pool of unknown name")
	}
	return slices.DeleteFunc(childrenOf(t, os.Getpid()), func(pid int) bool {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !bytes.HasPrefix(cmdline, append([]byte(name.(string)), 0))
	})
}

// childrenOf are the processes that another one has started.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && parentOf(pid) == parent && alive(pid) {
			out = append(out, pid)
		}
	}
	return out
}

// awaitChildren waits until a pool has n processes.
func awaitChildren(t *testing.T, pool *child.Pool, n int) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func(context.Context) error {
		if got := children(t, pool); len(got) != n {
			return fmt.Errorf("there are %d processes, want %d", len(got), n)
		}
		return nil
	})
}

// stat returns the state of a process and its parent.
func stat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

func parentOf(pid int) int { _, parent := stat(pid); return parent }

// alive reports whether a process runs and is not a zombie.
func alive(pid int) bool {
	state, _ := stat(pid)
	return state != "" && state != "Z" && state != "X"
}
