package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

// startTime is how long the start of a child may take on a busy machine.
const startTime = 20 * time.Second

// process is a child in its parent. It does one job at a time.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *stderrText
	status sandbox.Status
	weak   bool // less isolated than a later one may be; serves once

	owner  string // "" until its first job
	builds int

	how error // it ended, once it was waited for
}

// start starts the program as a child and waits until it is ready. run calls its argument on a thread that
// outlives the child.
func start(ctx context.Context, program string, options sandbox.Options, run func(func() error) error) (*process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, argument, options.Argument())
	cmd.Env = []string{} // not nil, which would mean the environment of the parent
	cmd.Dir = rootDir
	cmd.SysProcAttr = sandbox.Isolate(options.Isolation)
	cmd.WaitDelay = time.Second
	p := &process{cmd: cmd}
	p.stderr = &stderrText{tooMuch: p.interrupt}
	cmd.Stderr = p.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe to a renderer: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a pipe from a renderer: %w", err), in.Close())
	}
	p.in, p.out = in, bufio.NewReaderSize(out, 64<<10)
	if err := run(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting a renderer: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, errors.New("a renderer did not get ready in time"))
	defer cancel()
	stop := context.AfterFunc(ctx, p.interrupt)
	err = p.greet()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("starting a renderer: %w (%s: %s)", err, p.ended(), clean(p.stderr.String(), 500))
	}
	return p, nil
}

// greet waits for the hello message of a child.
func (p *process) greet() error {
	kind, payload, err := readFrame(p.out, 64<<10)
	if err != nil {
		return err
	}
	var h hello
	if kind != frameHello || json.Unmarshal(payload, &h) != nil {
		return errFrame
	}
	p.status = h.Sandbox
	return nil
}

// interrupt kills without waiting. It is safe for concurrent use.
func (p *process) interrupt() { _ = p.cmd.Process.Kill() }

// kill ends the process, if it has not ended, and waits for it. Only the owner of the process calls it, once.
func (p *process) kill() {
	p.interrupt()
	p.wait()
}

// wait closes our ends of the pipes and waits for a process that is ending.
func (p *process) wait() {
	_ = p.in.Close()
	p.how = p.cmd.Wait()
}

// ended describes how the process ended, after wait.
func (p *process) ended() string {
	if p.stderr.talked() {
		return "it was stopped because it wrote too much to its standard error"
	}
	if state := p.cmd.ProcessState; state != nil {
		return state.String()
	}
	return fmt.Sprint(p.how)
}

// maxStderr is more than the start of a stack trace. A process that writes several times as much is killed.
const maxStderr = 8 << 10

// stderrText keeps the start of the standard error of a child, where Go writes why it ends.
type stderrText struct {
	tooMuch func() // called once, if it writes too much

	mu      sync.Mutex
	text    []byte
	dropped int
	over    bool
}

func (s *stderrText) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := b[:min(len(b), maxStderr-len(s.text))]
	s.text = append(s.text, keep...)
	if s.dropped += len(b) - len(keep); s.dropped > 8*maxStderr && !s.over {
		s.over = true
		s.tooMuch()
	}
	return len(b), nil
}

func (s *stderrText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// talked reports whether the process wrote too much.
func (s *stderrText) talked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}
