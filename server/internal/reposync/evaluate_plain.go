package reposync

import (
	"context"
	"slices"
	"sync"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/render"
)

// plainRenders has equal plain manifests of a repository parsed once, whichever deployments they are of: their key is known before. What is
// built by a library is shared by [render.Cache].
type plainRenders struct {
	mu       sync.Mutex
	flights  map[string]*plainRender
	finished []string // keys of those that are done, the oldest first
}

type plainRender struct {
	done chan struct{}
	out  *packed // nil when it has failed: then each finds out by itself
}

const (
	// plainsKept is how many results wait for others that are equal.
	plainsKept = 4
	// plainBytes is how large such a one may be.
	plainBytes = 1 << 20
)

func (p *plainRenders) join(key string) (f *plainRender, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.flights[key]; ok {
		return f, false
	}
	if p.flights == nil {
		p.flights = map[string]*plainRender{}
	}
	f = &plainRender{done: make(chan struct{})}
	p.flights[key] = f
	return f, true
}

// finish ends a flight, and lets go of old ones.
func (p *plainRenders) finish(key string, f *plainRender) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(f.done)
	if f.out == nil || len(f.out.content) > plainBytes {
		delete(p.flights, key)
		return
	}
	p.finished = append(p.finished, key)
	if len(p.finished) > plainsKept {
		delete(p.flights, p.finished[0])
		p.finished = slices.Delete(p.finished, 0, 1)
	}
}

// renderPlain is renderOne of plain manifests with that key.
func (w *worker) renderPlain(ctx context.Context, key string, tree filetree.Tree, req render.Request) (*packed, string, error) {
	f, first := w.plainRenders.join(key)
	if first {
		defer w.plainRenders.finish(key, f)
		out, key, err := w.renderOne(ctx, tree, req)
		f.out = out
		return out, key, err
	}
	select {
	case <-ctx.Done():
		return nil, "", ctx.Err()
	case <-f.done:
	}
	if f.out != nil {
		return f.out, key, nil
	}
	return w.renderOne(ctx, tree, req)
}
