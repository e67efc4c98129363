package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Request is the request for a renderer.
type Request struct {
	Path         string
	Namespace    string
	Helm         fleet.Helm
	Capabilities fleet.Capabilities
}

// Result is the result of a renderer.
type Result struct {
	Objects  []manifest.Object
	Notes    []string
	Volatile bool // uses time or randomness
	Tainted  bool // the process changed: it must not render again
}

// Renderer renders with a library. It reads only through files. A mistake of a user is a [*treefs.Error] or a
// [*manifest.Error]. It must have no running goroutines after its return: files and its output share one
// stream.
type Renderer func(ctx context.Context, files treefs.Files, req Request) (Result, error)

// Serve executes the jobs from in, one after another, until in ends, which is how a parent ends a child. Then
// it returns immediately, even during a render: the caller must end the process.
func Serve(in io.Reader, out io.Writer, status sandbox.Status, renderers map[fleet.SourceKind]Renderer) error {
	frames := make(chan frame, 64) // so that replies to many questions wake the renderer once
	ended := make(chan error, 2)
	go func() { ended <- receive(in, frames) }()
	go func() { ended <- work(frames, out, status, renderers) }()
	return <-ended
}

type frame struct {
	kind    byte
	payload []byte
}

// receive continues to read during a job, so that it notices the end of in.
func receive(in io.Reader, frames chan<- frame) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		kind, payload, err := readFrame(r, math.MaxUint32) // the parent is trusted
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		frames <- frame{kind, payload}
	}
}

func work(frames <-chan frame, to io.Writer, status sandbox.Status, renderers map[fleet.SourceKind]Renderer) error {
	out := bufio.NewWriterSize(to, 64<<10) // one write for many objects
	if err := writeJSON(out, frameHello, hello{Sandbox: status}); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	quiet := time.NewTimer(restAfter)
	for {
		select {
		case f := <-frames:
			if err := doJob(f, frames, out, renderers); err != nil {
				return err
			}
			if measure("/memory/classes/heap/objects:bytes") > restAt {
				quiet.Stop()
				debug.FreeOSMemory()
			} else {
				quiet.Reset(restAfter)
			}
		case <-quiet.C:
			debug.FreeOSMemory()
		}
	}
}

// An idle child returns memory to the system.
const (
	// restAfter is the idle time before that: returning memory takes longer than a small build, and the next
	// build would wait for it.
	restAfter = 250 * time.Millisecond
	// restAt is the heap size above which memory is returned.
	restAt = 32 << 20
)

// measure reads a metric of this process.
func measure(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// doJob executes the job of a frame.
func doJob(f frame, frames <-chan frame, out *bufio.Writer, renderers map[fleet.SourceKind]Renderer) error {
	var job jobMessage
	if f.kind != frameJob {
		return fmt.Errorf("waiting for a job: %w", errFrame)
	}
	if err := json.Unmarshal(f.payload, &job); err != nil {
		return fmt.Errorf("reading a job: %w", err)
	}
	end, err := do(job, &remoteFiles{frames: frames, out: out}, out, renderers[job.Kind])
	if err != nil {
		return err
	}
	if err := writeJSON(out, frameEnd, end); err != nil {
		return err
	}
	return out.Flush()
}

// do executes one job and sends its objects. An error is an error of the connection to the parent.
func do(job jobMessage, files treefs.Files, out io.Writer, renderer Renderer) (endMessage, error) {
	if renderer == nil {
		return endMessage{Problem: &problem{Text: fmt.Sprintf("there is no renderer for %q", job.Kind), Fault: true}}, nil
	}
	result, err := renderer(context.Background(), files, Request{
		Path: job.Path, Namespace: job.Namespace, Helm: job.Helm, Capabilities: job.Capabilities,
	})
	end := endMessage{Notes: cleanNotes(result.Notes), Volatile: result.Volatile, Tainted: result.Tainted}
	end.CPU, end.Memory = cpuTime(), int64(measure("/memory/classes/total:bytes"))
	if err != nil {
		end.Problem = problemOf(err)
		return end, nil
	}
	for _, o := range result.Objects {
		payload, err := objectFrame(o)
		if err != nil {
			end.Problem = problemOf(err)
			return end, nil
		}
		if err := writeFrame(out, frameObject, payload); err != nil {
			return end, err
		}
	}
	return end, nil
}

func problemOf(err error) *problem {
	var tree *treefs.Error
	if errors.As(err, &tree) && tree.Error() == err.Error() {
		return &problem{Path: clean(tree.Path, maxPath), Text: clean(tree.Problem, maxProblem)}
	}
	var file *manifest.Error
	return &problem{Text: clean(err.Error(), maxProblem), Fault: tree == nil && !errors.As(err, &file)}
}

func writeJSON(w io.Writer, kind byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	return writeFrame(w, kind, data)
}
