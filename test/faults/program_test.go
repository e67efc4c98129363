package faults_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/rig"
)

// program is a process that is started again when it ends, like a container.
type program struct {
	name  string
	start func(ctx context.Context, attempt int) (*rig.Process, error)
	kill  chan struct{}

	cancel  context.CancelFunc
	ended   sync.WaitGroup
	mu      sync.Mutex
	current *rig.Process
	killed  int
	started int
	last    string // log of the last process that ended, or why it did not start
}

// supervise runs a program until the end of the test.
func supervise(tb testing.TB, name string, start func(ctx context.Context, attempt int) (*rig.Process, error)) *program {
	tb.Helper()
	p := &program{name: name, start: start, kill: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	p.cancel = cancel
	p.ended.Go(func() { p.run(ctx) })
	tb.Cleanup(func() {
		p.stop()
		if tb.Failed() {
			tb.Logf("last log of %s, which was started %d times and killed %d times:\n%s", p.name, p.started, p.killed, tail(p.last))
		}
	})
	return p
}

// stop ends the program and does not start it again.
func (p *program) stop() {
	p.cancel()
	p.ended.Wait()
}

func (p *program) run(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		process, err := p.start(ctx, attempt)
		if err != nil {
			p.note(func() { p.last = err.Error() })
			pause(ctx, 50*time.Millisecond)
			continue
		}
		p.note(func() { p.started, p.current = p.started+1, process })
		attempt = -1
		select {
		case <-p.kill:
			process.Kill()
			p.note(func() { p.killed++ })
		case <-process.Done():
		case <-ctx.Done():
			process.Kill()
		}
		p.note(func() { p.last = process.Log() })
	}
}

func (p *program) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// counts returns how often the program was started and killed.
func (p *program) counts() (started, killed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started, p.killed
}

// dump ends the process with the stacks of its goroutines in its log.
func (p *program) dump() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		p.current.Signal(syscall.SIGQUIT)
	}
}

// pause waits for a time, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// tail returns the end of a log.
func tail(text string) string {
	const most = 20_000
	return text[max(0, len(text)-most):]
}

// logFile returns a file for the log of a program, if KEDGE_FAULT_LOGS names a folder.
func logFile(tb testing.TB, name string) *os.File {
	tb.Helper()
	dir := os.Getenv("KEDGE_FAULT_LOGS")
	if dir == "" {
		dir = tb.TempDir()
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.log", name, time.Now().UnixNano())))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}
