package child

import (
	"bufio"
	"context"
	"fmt"
	"sync"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// remoteFiles is the tree in a child: it sends every question to the parent, one at a time unless prefetched.
// It is safe for concurrent use.
type remoteFiles struct {
	mu     sync.Mutex
	frames <-chan frame
	out    *bufio.Writer
	early  map[string][]byte // prefetched replies, by op and path
}

var _ interface {
	treefs.Files
	treefs.Prefetcher
} = (*remoteFiles)(nil)

// maxBatch is the number of bytes of questions in one batch. They must fit into a pipe: while the child writes,
// it reads no reply, and while the parent writes a reply, it reads no question.
const maxBatch = 16 << 10

// Prefetch implements treefs.Prefetcher. Questions that cannot be prefetched are asked later.
func (r *remoteFiles) Prefetch(_ context.Context, q treefs.Questions) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var batch []string
	size := 0
	for op, paths := range map[byte][]string{opStat: q.Stat, opRead: q.Read, opList: q.List} {
		for _, path := range paths {
			if len(path) > maxPath {
				continue
			}
			if size += len(path) + frameOverhead; size > maxBatch {
				if !r.askAll(batch) {
					return
				}
				batch, size = nil, len(path)+frameOverhead
			}
			batch = append(batch, string(op)+path)
		}
	}
	r.askAll(batch)
}

// askAll sends questions and keeps the replies.
func (r *remoteFiles) askAll(questions []string) bool {
	for _, q := range questions {
		_ = writeFrame(r.out, frameQuery, []byte(q)) // Flush returns the error
	}
	if r.out.Flush() != nil {
		return false
	}
	for _, q := range questions {
		f := <-r.frames
		if f.kind != frameReply {
			return false
		}
		if r.early == nil {
			r.early = map[string][]byte{}
		}
		r.early[q] = f.payload
	}
	return true
}

// Stat implements treefs.Files.
func (r *remoteFiles) Stat(_ context.Context, path string) (treefs.Node, error) {
	body, err := r.ask(opStat, path)
	if err != nil {
		return treefs.Node{}, err
	}
	n, _, err := cutNode(body)
	return n, err
}

// Read implements treefs.Files.
func (r *remoteFiles) Read(_ context.Context, path string) ([]byte, error) {
	return r.ask(opRead, path)
}

// List implements treefs.Files.
func (r *remoteFiles) List(_ context.Context, path string) ([]treefs.Node, error) {
	body, err := r.ask(opList, path)
	if err != nil {
		return nil, err
	}
	return cutNodes(body)
}

func (r *remoteFiles) ask(op byte, path string) ([]byte, error) {
	if len(path) > maxPath {
		return nil, &treefs.Error{Path: path[:maxPath], Problem: fmt.Sprintf("the path is longer than %d bytes", maxPath)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	question := string(op) + path
	if reply, ok := r.early[question]; ok {
		delete(r.early, question)
		return cutReply(reply, path)
	}
	_ = writeFrame(r.out, frameQuery, []byte{op}, []byte(path)) // Flush returns the error
	if err := r.out.Flush(); err != nil {
		return nil, fmt.Errorf("asking for %q: %w", path, err)
	}
	f := <-r.frames
	if f.kind != frameReply {
		return nil, fmt.Errorf("waiting for %q: %w", path, errFrame)
	}
	return cutReply(f.payload, path)
}
