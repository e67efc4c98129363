package reposync

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/lru"
	"github.com/kedge-dev/kedge/internal/render"
)

// plainRenders renders equal plain manifests of a repository once, for all its deployments. Their key is known before the
// render, so that the packed result is shared; [render.Cache] shares builds of Kustomize and Helm, whose key is not.
type plainRenders struct {
	flights singleflight.Group
	kept    *lru.Cache[string, *packed]
}

const (
	// plainBytes is the maximum size of a kept result.
	plainBytes = 1 << 20
	// plainsKept is the number of results of that size that are kept.
	plainsKept = 4
	// plainCost is added to the size of a result.
	plainCost = 4 << 10
)

func newPlainRenders() *plainRenders {
	return &plainRenders{kept: lru.New[string](plainsKept*(plainBytes+plainCost), func(p *packed) int { return len(p.content) + plainCost })}
}

// get returns the kept result of a key, or that of render, which runs once for all callers that wait. first reports
// whether this call ran it.
func (p *plainRenders) get(ctx context.Context, key string, render func() (*packed, error)) (out *packed, first bool, err error) {
	if out, ok := p.kept.Get(key); ok {
		return out, false, nil
	}
	var ran atomic.Bool
	done := p.flights.DoChan(key, func() (any, error) {
		ran.Store(true)
		out, err := render()
		if err == nil && len(out.content) <= plainBytes {
			p.kept.Put(key, out)
		}
		return out, err
	})
	select {
	case <-ctx.Done():
		return nil, true, ctx.Err()
	case r := <-done:
		return r.Val.(*packed), ran.Load(), r.Err
	}
}

// renderPlain renders plain manifests with that key.
func (w *worker) renderPlain(ctx context.Context, key string, tree filetree.Tree, req render.Request) (*packed, string, error) {
	out, first, err := w.plainRenders.get(ctx, key, func() (*packed, error) {
		out, _, err := w.renderOne(ctx, tree, req)
		return out, err
	})
	if err != nil && !first { // the error may be that of the other caller's context
		return w.renderOne(ctx, tree, req)
	}
	return out, key, err
}
