package gitsource

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	partialFile = "kedge-partial"
	// promisor is the name of the remote of a partial mirror. git wants one to allow that something is
	// missing. It is in no file: only runs that get it by their environment may miss anything or fetch
	// it, and readers are told what is not there.
	promisor = "kedge"
	noBlobs  = "blob:none"
	// maxBatch bounds the files that are fetched at once.
	maxBatch = 10_000
)

// stampPartial remembers on disk that a mirror is partial.
func (r *mirror) stampPartial() error {
	if !r.partial.Load() {
		return nil
	}
	return os.WriteFile(filepath.Join(r.dir, partialFile), nil, 0o600)
}

// partialConfig is what git needs to know of a partial mirror, nil for one that is whole.
func (r *mirror) partialConfig(url string) []setting {
	if !r.partial.Load() {
		return nil
	}
	out := []setting{{"remote." + promisor + ".promisor", "true"}, {"remote." + promisor + ".partialclonefilter", noBlobs}}
	if url != "" {
		out = append(out, setting{"remote." + promisor + ".url", url})
	}
	return out
}

// askFetch runs git fetch with refspecs as arguments, or with the names of files' contents from stdin. A server that cannot leave out
// contents sends them all.
func (r *mirror) askFetch(ctx context.Context, via *route, stdin io.Reader, options, specs []string) (string, error) {
	p, err := via.open(ctx, uploadPack)
	defer p.close()
	remote := p.url
	args := append(slices.Clone(fetchArgs), options...)
	if r.partial.Load() {
		remote = promisor
		args = slices.Insert(args, 1, "--filter="+noBlobs)
	}
	config := r.partialConfig(p.url)
	if stdin != nil {
		// What is here says nothing of which files are: a server that knew of the commits would send none.
		config = append(config, setting{"fetch.negotiationAlgorithm", "noop"})
	}
	return r.askThrough(ctx, via, p, err, call{dir: r.dir, stdin: stdin, config: config, args: slices.Concat(args, []string{remote}, specs)})
}

// markPromised marks packs that git has written without knowing that the mirror is partial: whatever is
// in one came from the remote, which also has what is missing.
func (r *mirror) markPromised() error {
	if !r.partial.Load() {
		return nil
	}
	packs, err := filepath.Glob(filepath.Join(r.dir, "objects", "pack", "*.pack"))
	for _, pack := range packs {
		file, openErr := os.OpenFile(strings.TrimSuffix(pack, ".pack")+".promisor", os.O_CREATE|os.O_WRONLY, 0o600)
		if openErr == nil {
			openErr = file.Close()
		}
		err = errors.Join(err, openErr)
	}
	return err
}

// fetchBlobs brings the contents of files into a partial mirror, by one run of git.
func (m *Manager) fetchBlobs(ctx context.Context, a Access, ids []string) error {
	r, err := m.use(a)
	if err != nil {
		return err
	}
	defer m.end(r.mirror)
	via, err := m.route(r)
	if err != nil {
		return err
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	if err := r.refusedLocked(); err != nil {
		return err
	}
	if err := m.makeRoom(ctx, r.mirror); err != nil {
		return err
	}
	defer m.weigh(r.mirror)
	ctx, cancel := via.within(ctx)
	defer cancel()
	_, err = r.withinLocked(ctx, r.room.bytes, func(ctx context.Context) (map[string]Ref, error) {
		_, err := r.askFetch(ctx, via, strings.NewReader(strings.Join(ids, "\n")+"\n"), []string{"--stdin"}, nil)
		return nil, err
	})
	if err != nil {
		r.exceededLocked(ctx, err)
		r.ready = false // git may have been killed
		return err
	}
	m.maintainLater(r.mirror)
	return nil
}
