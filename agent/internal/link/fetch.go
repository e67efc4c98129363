package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// fetchSet is the set of digests that are being fetched on one connection.
type fetchSet struct {
	mu      sync.Mutex
	running map[string]struct{}
	all     sync.WaitGroup
}

func newFetchSet() *fetchSet { return &fetchSet{running: map[string]struct{}{}} }

func (s *fetchSet) wait() { s.all.Wait() }

// start runs fn unless digest is being fetched already, and again for as long as more says that
// there is more to do: somebody may come to want the digest just when fn ends.
func (s *fetchSet) start(digest string, fn func(), more func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.running[digest]; ok {
		return
	}
	s.running[digest] = struct{}{}
	s.all.Go(func() {
		for again := true; again; again = s.goesOn(digest, more) {
			fn()
		}
	})
}

// goesOn decides under the lock that start takes: who comes later finds the digest not running.
func (s *fetchSet) goesOn(digest string, more func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if more() {
		return true
	}
	delete(s.running, digest)
	return false
}

// fetch gets a bundle in the background and tries again for as long as the connection lives and a
// target waits for it. Parts survive the connection.
func (n *connection) fetch(ctx context.Context, digest string) {
	more := func() bool { return ctx.Err() == nil && n.hopeFor(digest) }
	n.fetched.start(digest, func() {
		var delay backoff
		for more() {
			err := n.fetchOnce(ctx, digest)
			if err == nil || ctx.Err() != nil {
				return
			}
			n.cfg.Metrics.bundleRetries.Inc()
			n.log.Warn("fetching a bundle", obs.KeyDigest, digest, obs.Err(err))
			if errors.Is(err, errTooLarge) {
				n.giveUp(digest, err)
				continue // to those who came meanwhile
			}
			if status.Code(err) == codes.NotFound || errors.Is(err, errBundle) {
				n.reject(digest, err)
			}
			wait.For(ctx, delay.after(err, 0))
		}
	}, more)
}

// hopeFor reports whether a target waits for a bundle that may still come. Targets that came to
// wait for a hopeless one are told.
func (n *connection) hopeFor(digest string) bool {
	n.mu.Lock()
	why := n.hopeless[digest]
	n.mu.Unlock()
	if why != nil {
		n.reject(digest, why)
		return false
	}
	return n.isAwaited(digest)
}

func (n *connection) giveUp(digest string, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hopeless[digest] = why
}

// errBundle says that the bytes are whole and wrong.
var errBundle = errors.New("the bundle is not what its digest says")

// errTooLarge says that no second try can help.
var errTooLarge = errors.New("too large for this agent")

func (n *connection) fetchOnce(ctx context.Context, digest string) error {
	select {
	case n.fetches <- struct{}{}:
		defer func() { <-n.fetches }()
	case <-ctx.Done():
		return ctx.Err()
	}
	content, err := n.download(ctx, digest)
	if err != nil {
		return err
	}
	n.mu.Lock()
	delete(n.partial, digest)
	n.mu.Unlock()
	set, err := n.unpack(digest, content)
	if errors.Is(err, manifest.ErrTooLarge) {
		return fmt.Errorf("%w: %w", errTooLarge, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errBundle, err)
	}
	n.passFetched(digest, set)
	return nil
}

func (c *Client) unpack(digest string, content []byte) (*manifest.Set, error) {
	c.unpacking.Lock()
	defer c.unpacking.Unlock()
	return c.cfg.Unpack(digest, content)
}

// download goes on where an earlier transfer broke off.
func (n *connection) download(ctx context.Context, digest string) ([]byte, error) {
	n.mu.Lock()
	content := n.partial[digest]
	n.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.rpc.FetchBundle(ctx, &agentv1.FetchBundleRequest{Digest: digest, Offset: int64(len(content))})
	if err != nil {
		return nil, err
	}
	var total int64 = -1
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if status.Code(err) == codes.OutOfRange {
				n.keepPartial(digest, nil) // it is not the same bytes any more: begin anew
			}
			return nil, err
		}
		if total < 0 {
			if total = resp.GetTotal(); total > wire.MaxBundle {
				return nil, fmt.Errorf("%w: it has %d bytes, more than %d", errTooLarge, total, wire.MaxBundle)
			}
			if total < 0 {
				return nil, fmt.Errorf("%w: it has %d bytes", errBundle, total)
			}
		}
		if int64(len(content)+len(resp.GetChunk())) > total {
			n.keepPartial(digest, nil)
			return nil, fmt.Errorf("%w: it is longer than announced", errBundle)
		}
		content = append(content, resp.GetChunk()...)
		n.cfg.Metrics.bundleBytes.Add(float64(len(resp.GetChunk())))
		n.keepPartial(digest, content)
	}
	if int64(len(content)) != total {
		return nil, fmt.Errorf("fetching bundle %s: it ended after %d of %d bytes", digest, len(content), total)
	}
	return content, nil
}

func (n *connection) keepPartial(digest string, content []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if content == nil {
		delete(n.partial, digest)
		return
	}
	n.partial[digest] = content
}
