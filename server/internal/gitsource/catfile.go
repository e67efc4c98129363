package gitsource

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// catIdle is how long an unused process stays open.
const catIdle = 5 * time.Minute

var errNoObject = errors.New("object not found")

// catFile is one git cat-file process that stays open, so that reading does not start a process. It starts on
// demand, also after the process died, after close, and after another reader took its slot. Requests take turns.
// Each is a round trip through a pipe. git looks for new packs and refs when it does not find an object, so it
// sees what was fetched after it started.
type catFile struct {
	readers *readers
	git     *git
	dir     string
	onIdle  func()

	lock   chan struct{} // a lock: an element means that it is locked; guards the next fields
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *tail // the standard error of the process; complete after Wait
	idle   *time.Timer
}

// object is the header of an object.
type object struct {
	id   string
	kind string
	size int64
}

func newCatFile(all *readers, g *git, dir string, onIdle func()) *catFile {
	return &catFile{readers: all, git: g, dir: dir, onIdle: onIdle, lock: make(chan struct{}, 1)}
}

// info returns the header of an object by any name that git understands. It returns errNoObject if there is none.
func (c *catFile) info(ctx context.Context, name string) (object, error) {
	var found object
	err := c.do(ctx, func() (err error) {
		found, err = c.request("info", name)
		return err
	})
	return found, err
}

// read returns the content of an object. It returns filetree.ErrTooBig, without reading it, for an object larger
// than limit.
func (c *catFile) read(ctx context.Context, name string, limit int64) (object, []byte, error) {
	var found object
	var content []byte
	err := c.do(ctx, func() (err error) {
		if found, err = c.request("info", name); err != nil {
			return err
		}
		if found.size > limit {
			return filetree.ErrTooBig
		}
		if found, err = c.request("contents", found.id); err != nil {
			return err
		}
		content = make([]byte, found.size+1) // a line feed follows
		if _, err := io.ReadFull(c.out, content); err != nil {
			return fmt.Errorf("reading from git: %w", err)
		}
		content = content[:found.size]
		return nil
	})
	return found, content, err
}

// do runs one exchange. If the process turns out to be dead, it repeats the exchange with a new one.
func (c *catFile) do(ctx context.Context, exchange func() error) error {
	select {
	case c.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer c.readers.touch(c)
	defer func() { <-c.lock }()
	for {
		fresh, err := c.startLocked(ctx)
		if err != nil {
			return err
		}
		// The context of the caller ends a process that hangs. The next call starts a new one.
		process, killed := c.cmd, make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = process.Cancel()
			close(killed)
		})
		err = exchange()
		if !stop() {
			<-killed // before another process can get the same id
			c.stopLocked()
			return ctx.Err()
		}
		if err == nil || errors.Is(err, errNoObject) || errors.Is(err, filetree.ErrTooBig) {
			c.idle.Reset(catIdle)
			return err
		}
		c.stopLocked()
		if reportsOutOfMemory(c.stderr.String(), true) {
			return fmt.Errorf("%w: %s to read one file, folder or commit; ask the operator of the server to raise --git-memory", errMemory, sizeText(ReaderMemory(c.git.memory)))
		}
		if fresh {
			return err
		}
	}
}

func (c *catFile) startLocked(ctx context.Context) (fresh bool, err error) {
	if c.cmd != nil {
		return false, nil
	}
	if err := c.readers.acquire(ctx, c); err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			c.readers.release(c)
		}
	}()
	cmd := c.git.readerCommand(c.dir)
	c.stderr = &tail{limit: maxStderr}
	cmd.Stderr = c.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return false, fmt.Errorf("starting git cat-file: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, fmt.Errorf("starting git cat-file: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("starting git cat-file: %w", err)
	}
	c.cmd, c.in, c.out = cmd, in, bufio.NewReaderSize(out, 32<<10)
	c.idle = time.AfterFunc(catIdle, c.close)
	return true, nil
}

// close stops the process. The next request starts a new one.
func (c *catFile) close() {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	c.stopLocked()
	c.onIdle()
}

func (c *catFile) stopLocked() {
	if c.cmd == nil {
		return
	}
	c.idle.Stop()
	_ = c.in.Close()
	_ = c.cmd.Cancel()
	_ = c.cmd.Wait() // it was killed, so its exit status is irrelevant
	c.cmd, c.in, c.out = nil, nil, nil
	c.readers.release(c)
}

func (c *catFile) request(verb, name string) (object, error) {
	if strings.ContainsAny(name, "\n\x00") {
		return object{}, errNoObject
	}
	if _, err := io.WriteString(c.in, verb+" "+name+"\n"); err != nil {
		return object{}, fmt.Errorf("writing to git: %w", err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return object{}, fmt.Errorf("reading from git: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if strings.HasSuffix(line, " missing") || strings.HasSuffix(line, " ambiguous") {
		return object{}, errNoObject
	}
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return object{}, fmt.Errorf("reading from git: unexpected response %q", line)
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return object{}, fmt.Errorf("reading from git: unexpected response %q", line)
	}
	return object{id: fields[0], kind: fields[1], size: size}, nil
}
