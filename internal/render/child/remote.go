package child

import (
	"bufio"
	"context"
	"fmt"
	"sync"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// remoteFiles is the tree as a child sees it: every question goes to the parent, one at a time. It is safe for
// concurrent use.
type remoteFiles struct {
	mu     sync.Mutex
	frames <-chan frame
	out    *bufio.Writer
}

var _ treefs.Files = (*remoteFiles)(nil)

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
	_ = writeFrame(r.out, frameQuery, []byte{op}, []byte(path)) // Flush says what went wrong
	if err := r.out.Flush(); err != nil {
		return nil, fmt.Errorf("asking for %q: %w", path, err)
	}
	f := <-r.frames
	if f.kind != frameReply {
		return nil, fmt.Errorf("waiting for %q: %w", path, errFrame)
	}
	return cutReply(f.payload, path)
}
