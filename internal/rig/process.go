package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a graceful stop may take.
const stopGrace = 20 * time.Second

// Process is a running program with its log. Its methods are safe for concurrent use.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid when done is closed

	mu  sync.Mutex
	log bytes.Buffer
	tee io.Writer
}

// Start starts cmd in its own process group, so that Ctrl-C in a terminal reaches only the parent, and so that
// it always dies with the parent. Its standard error is kept, and copied to tee unless tee is nil.
func Start(name string, cmd *exec.Cmd, tee io.Writer) (*Process, error) {
	p := &Process{name: name, cmd: cmd, done: make(chan struct{}), tee: tee}
	cmd.Stderr = logWriter{p}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Name returns the name of the process.
func (p *Process) Name() string { return p.name }

// PID returns the ID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the end of the process and returns its error; nil means exit code 0.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// ExitCode waits for the end and returns the code, −1 after a signal.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Stop stops the process. If it does not stop in time, Stop kills it and returns an error.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(stopGrace):
		p.Kill()
		return fmt.Errorf("%s did not stop within %v and was killed", p.name, stopGrace)
	}
}

// Kill kills the process and waits for its end.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Log returns the standard error of the process so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Ended describes the unexpected end of a process.
func (p *Process) Ended() error {
	err := p.Err()
	if err == nil {
		err = errors.New("it stopped by itself")
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

type logWriter struct{ p *Process }

func (w logWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.p.tee != nil {
		_, _ = w.p.tee.Write(b)
	}
	return w.p.log.Write(b)
}
