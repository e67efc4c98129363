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

// startTime is how long a child may take until it is ready, on a busy machine.
const startTime = 20 * time.Second

// process is a child as its parent sees it. It does one thing at a time.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *stderrText
	status sandbox.Status
	weak   bool // it is less isolated than the next one may be, and serves once

	owner  string // "" until it has served somebody
	builds int

	how error // it ended, once it was waited for
}

// start runs the program as a child and waits until it is ready. run calls its argument on a thread that
// outlives the child.
func start(ctx context.Context, program string, options sandbox.Options, run func(func() error) error) (*process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, argument, options.Argument())
	cmd.Env = []string{} // not nil, which would be ours
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

// greet waits for the first words of a child.
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

// interrupt kills without waiting. It may be called at any time, by anybody.
func (p *process) interrupt() { _ = p.cmd.Process.Kill() }

// kill ends the process, if it has not ended, and waits for that. It is called once, by whom the process
// belongs to.
func (p *process) kill() {
	p.interrupt()
	p.wait()
}

// wait closes our ends and waits for the end of a process that is ending.
func (p *process) wait() {
	_ = p.in.Close()
	p.how = p.cmd.Wait()
}

// ended says how a process ended that was waited for.
func (p *process) ended() string {
	if p.stderr.talked() {
		return "it was stopped for writing too much to its standard error"
	}
	if state := p.cmd.ProcessState; state != nil {
		return state.String()
	}
	return fmt.Sprint(p.how)
}

// maxStderr is more than the beginning of a stack trace; what goes on beyond a few times that is killed.
const maxStderr = 8 << 10

// stderrText keeps the beginning of what a child writes, which is where Go says why it ends.
type stderrText struct {
	tooMuch func() // called once, when it writes and writes

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

// talked reports whether there was too much.
func (s *stderrText) talked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}
