//go:build unix

package localcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// watch waits for the end of its standard input, which comes when the process at the other end closes it or
// dies, and then kills the group and removes the folder. It is plain POSIX: dash accepts "kill -s KILL -- -N",
// not "kill -KILL -- -N".
const watch = `read -r _; kill -s KILL -- "-$1"; rm -rf -- "$2"`

// group is a process group that does not outlive this process.
//
// Its leader is an idle cat: it reserves the number of the group from before the watchdog starts until after
// the watchdog has used it. Both are in other groups, so that Ctrl-C in a terminal reaches only this process,
// which then stops everything in order.
type group struct {
	leader   *exec.Cmd
	watchdog *exec.Cmd
	hold     []io.Closer // write ends of the two pipes

	mu       sync.Mutex
	stopping bool
	members  sync.WaitGroup
}

func newGroup(dir string) (*group, error) {
	g := &group{leader: exec.Command("cat")} //nolint:noctx // stop ends it
	if err := g.startOnPipe(g.leader); err != nil {
		return nil, err
	}
	pid := strconv.Itoa(g.leader.Process.Pid)
	g.watchdog = exec.Command("sh", "-c", watch, "watchdog", pid, dir) //nolint:noctx // stop ends it
	if err := g.startOnPipe(g.watchdog); err != nil {
		return nil, errors.Join(err, g.leader.Process.Kill(), ignoreExit(g.leader.Wait()))
	}
	return g, nil
}

func (g *group) startOnPipe(cmd *exec.Cmd) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("making a pipe to %s: %w", cmd.Path, err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The watchdog must be able to remove the working folder of this process.
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	g.hold = append(g.hold, in)
	return nil
}

// start starts cmd as a member and calls exited, on another goroutine, if it ends before stop.
func (g *group) start(cmd *exec.Cmd, exited func(error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return fmt.Errorf("starting %s: %w", cmd.Path, os.ErrClosed)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.leader.Process.Pid}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	g.members.Go(func() {
		if err := cmd.Wait(); !g.isStopping() {
			exited(err)
		}
	})
	return nil
}

func (g *group) isStopping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopping
}

// stop kills all members and returns when they are gone. No graceful stop is needed, because the data is
// deleted too. The watchdog does the work, so that a stop and a crash use the same code.
func (g *group) stop() error {
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	err := g.hold[1].Close()
	err = errors.Join(err, ignoreExit(g.watchdog.Wait()))
	// The leader was killed with the group, unless another process killed the watchdog first.
	if killErr := syscall.Kill(-g.leader.Process.Pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
		err = errors.Join(err, fmt.Errorf("killing the process group: %w", killErr))
	}
	g.members.Wait()
	return errors.Join(err, ignoreExit(g.leader.Wait()))
}

// ignoreExit drops the error about the exit code or signal of a program.
func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}
