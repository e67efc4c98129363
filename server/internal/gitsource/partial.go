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
	// promisor is the name of the remote of a partial mirror. git needs one to accept missing objects. No
	// configuration file contains it: only runs that get it in their environment accept or fetch missing objects.
	// Readers report them as missing.
	promisor = "kedge"
	noBlobs  = "blob:none"
	// maxBatch limits the files of one fetch.
	maxBatch = 10_000
)

// stampPartial records on disk that a mirror is partial.
func (r *mirror) stampPartial() error {
	if !r.partial.Load() {
		return nil
	}
	return os.WriteFile(filepath.Join(r.dir, partialFile), nil, 0o600)
}

// partialConfig returns the configuration for a partial mirror, or nil for a complete one.
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

// runFetch runs git fetch with refspecs as arguments, or with object ids from stdin. A server that does not
// support filters sends the contents of all files.
func (r *mirror) runFetch(ctx context.Context, via *route, stdin io.Reader, options, specs []string) (string, error) {
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
		// Do not announce commits: a server that knows them would assume that the mirror has their files, and
		// send none.
		config = append(config, setting{"fetch.negotiationAlgorithm", "noop"})
	}
	return r.runOver(ctx, via, p, err, gitCall{dir: r.dir, stdin: stdin, config: config, args: slices.Concat(args, []string{remote}, specs)})
}

// markPromisorPacks marks packs that git wrote without the configuration of a partial mirror. Everything in them
// came from the remote, which also has the missing objects.
func (r *mirror) markPromisorPacks() error {
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

// fetchBlobs fetches the contents of files into a partial mirror, with one run of git.
func (m *Manager) fetchBlobs(ctx context.Context, a Access, ids []string) error {
	r, err := m.acquire(a)
	if err != nil {
		return err
	}
	defer m.release(r.mirror)
	via, err := m.route(r)
	if err != nil {
		return err
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	if err := r.rejectedLocked(); err != nil {
		return err
	}
	if err := m.reserveSpace(ctx, r.mirror); err != nil {
		return err
	}
	defer m.updateDiskUsage(r.mirror)
	ctx, cancel := via.withTimeout(ctx)
	defer cancel()
	_, err = r.withSizeLimitLocked(ctx, r.sizeLimit.bytes, func(ctx context.Context) (map[string]Ref, error) {
		_, err := r.runFetch(ctx, via, strings.NewReader(strings.Join(ids, "\n")+"\n"), []string{"--stdin"}, nil)
		return nil, err
	})
	if err != nil {
		r.rejectExceededLocked(ctx, err)
		r.ready = false // git may have been killed
		return err
	}
	m.startMaintenance(r.mirror)
	return nil
}
