package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// outcome is the result of a job.
type outcome struct {
	built *render.Built
	err   error
	end   endMessage
	keep  bool // the process can serve its owner again; otherwise it is dead
	// unheard means that the process ended by itself before it sent anything about the job.
	unheard bool
}

// build executes one job in one process. It kills the process unless the outcome says to keep it.
func (p *process) build(ctx context.Context, job render.Job, limits Limits) outcome {
	outer := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Time, errTime)
	defer cancel()
	stop := context.AfterFunc(ctx, p.interrupt)
	b := &building{
		process: p, job: job, limits: limits, left: limits.Output, outer: outer, replies: bufio.NewWriterSize(p.in, 16<<10),
		files: treefs.New(job.Tree, treefs.Limits{
			Files: job.Limits.Files, FileBytes: job.Limits.FileBytes, TotalBytes: job.Limits.TotalBytes, Entries: job.Limits.Entries,
		}),
		built: &render.Built{},
	}
	o := outcome{built: b.built, err: b.run(ctx)}
	o.end = b.end
	o.keep = stop() && b.finished && b.fault == nil && !b.end.Problem.fault()
	if !o.keep {
		p.kill()
	}
	switch {
	case b.finished:
	case ctx.Err() != nil:
		o.err = limits.interrupted(ctx, job.Path)
	case errors.Is(o.err, errGone):
		o.err = limits.deathError(job.Path, p.ended(), p.stderr.String())
		o.unheard = !b.heard
	}
	if b.fault != nil { // the tree could not be read: the error of the renderer is only a consequence
		o.err = b.fault
	}
	if o.err != nil {
		o.built = nil
	}
	if !b.unreadable {
		o.err = render.Fail(o.err, b.files.Reads())
	}
	return o
}

// headroom is for data in addition to the content of objects: sources, and the end of a job.
const headroom = 64 << 10

// errGone means that the pipes to a child are closed.
var errGone = errors.New("the renderer has ended")

// building is one running job.
type building struct {
	*process
	job    render.Job
	limits Limits
	files  *treefs.FS
	// replies is the connection to the child.
	replies *bufio.Writer
	// outer has no render timeout: a file may have to be fetched first, which helps the next attempt.
	outer context.Context

	built    *render.Built
	end      endMessage
	left     int64 // bytes that may still be received
	values   int   // values received
	heard    bool
	finished bool  // the child sent its end message
	fault    error // the first error of reading the tree
	// unreadable means that the tree itself cannot be read, see render.Fail.
	unreadable bool
}

func (b *building) run(ctx context.Context) error {
	err := writeJSON(b.in, frameJob, jobMessage{
		Kind: b.job.Kind, Path: b.job.Path, Namespace: b.job.Namespace, Helm: b.job.Helm, Capabilities: b.job.Capabilities,
	})
	if err != nil {
		return errGone
	}
	for !b.finished {
		kind, payload, err := readFrame(b.out, min(b.left, manifest.MaxFile)+headroom)
		var big *frameTooBig
		switch {
		case errors.As(err, &big) && big.kind == frameObject && b.left >= manifest.MaxFile:
			return objectError(b.job.Path)
		case errors.As(err, &big):
			return b.limits.outputError(b.job.Path)
		case err != nil:
			return errGone
		}
		b.heard = true
		if err := b.take(ctx, kind, payload); err != nil {
			return err
		}
	}
	return b.conclude()
}

// take handles a frame of the child.
func (b *building) take(ctx context.Context, kind byte, payload []byte) error {
	switch kind {
	case frameQuery:
		return b.answer(ctx, payload)
	case frameObject:
		if b.left -= int64(len(payload)); b.left < 0 {
			return b.limits.outputError(b.job.Path)
		}
		objects, err := parseObject(payload)
		if err != nil {
			return unbelievable(b.job.Path, err)
		}
		for _, o := range objects {
			b.values += o.Values()
		}
		if b.values > manifest.MaxValues {
			return valuesError(b.job.Path)
		}
		b.built.Objects = append(b.built.Objects, objects...)
		if most := b.job.Limits.OrDefault().Objects; len(b.built.Objects) > most {
			return objectsError(b.job.Path, most)
		}
		return nil
	case frameEnd:
		if err := json.Unmarshal(payload, &b.end); err != nil {
			return unbelievable(b.job.Path, err)
		}
		b.finished = true
		return nil
	}
	return unbelievable(b.job.Path, errFrame)
}

// unbelievable returns the error for an invalid object or a corrupt message of a renderer. In both cases, the
// input is the cause.
func unbelievable(path string, err error) error {
	var file *manifest.Error
	if errors.As(err, &file) {
		return err
	}
	return mistake(path, "the render process sent an invalid message (%v): this input breaks the renderer; change it, and please report it", err)
}

// conclude converts the end of a job to its result.
func (b *building) conclude() error {
	if p := b.end.Problem; p != nil {
		return &render.Error{Path: clean(p.Path, maxPath), Problem: clean(p.Text, maxProblem)}
	}
	b.built.Notes = cleanNotes(b.end.Notes)
	b.built.Volatile = b.end.Volatile
	b.built.Reads = b.files.Reads()
	return nil
}

func (p *problem) fault() bool { return p != nil && p.Fault }

// answer reads the tree for the child.
func (b *building) answer(ctx context.Context, payload []byte) error {
	op, path, err := parseQuery(payload)
	if err != nil {
		return unbelievable(b.job.Path, err)
	}
	began := time.Now()
	body, data, err := b.look(b.outer, op, path)
	if err != nil {
		var tree *filetree.Error
		b.unreadable = b.unreadable || errors.As(err, &tree)
		body, data = replyError(err), nil
		if body[0] == replyFault && b.fault == nil {
			b.fault = fmt.Errorf("reading %q for a render: %w", clean(path, 200), err)
		}
	}
	if ctx.Err() != nil && b.fault == nil && time.Since(began) > b.limits.Time/2 {
		b.fault = fmt.Errorf("reading %q for a render took %s, which left no time for it", clean(path, 200), time.Since(began).Round(time.Second))
	}
	if writeFrame(b.replies, frameReply, body, data) != nil {
		return errGone
	}
	return b.flush()
}

// flush sends the replies unless more questions have arrived: a child that asks several questions together gets
// the replies together. The buffer may contain a partial question, whose rest the child writes without waiting
// for replies.
func (b *building) flush() error {
	if b.out.Buffered() == 0 && b.replies.Flush() != nil {
		return errGone
	}
	return nil
}

// look returns the reply to a question in two parts.
func (b *building) look(ctx context.Context, op byte, path string) (out, data []byte, err error) {
	out = []byte{replyOK}
	switch op {
	case opStat:
		node, err := b.files.Stat(ctx, path)
		return appendNode(out, node), nil, err
	case opRead:
		data, err := b.files.Read(ctx, path)
		return out, data, err
	default:
		nodes, err := b.files.List(ctx, path)
		for _, n := range nodes {
			out = appendNode(out, n)
		}
		return out, nil, err
	}
}
