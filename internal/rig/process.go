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

// stopGrace is how long a program may take to stop in order.
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

// Start starts cmd in a process group of its own, so that Ctrl-C at a terminal reaches only the
// program that started it, and so that it dies with that program whatever happens. Its standard
// error is kept, and copied to tee unless that is nil.
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

// Name is what the process was called at its start.
func (p *Process) Name() string { return p.name }

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended; nil means with code 0. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// ExitCode waits for the end and returns the code, −1 after a signal.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Stop asks the process to stop and, when it does not, kills it and says so.
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

// Kill is kill −9, and waits for the end.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Log is what the process has written to its standard error.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Ended describes the end of a process that should have gone on.
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
