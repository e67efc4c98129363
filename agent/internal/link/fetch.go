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

// fetchSet is the set of bundles that one connection is fetching.
type fetchSet struct {
	mu      sync.Mutex
	running map[string]struct{} // by digest
	all     sync.WaitGroup
}

func newFetchSet() *fetchSet { return &fetchSet{running: map[string]struct{}{}} }

func (s *fetchSet) wait() { s.all.Wait() }

// start runs fn in the background unless digest is being fetched already. It runs fn again for as long as more returns
// true: a target may start to wait for the bundle just when fn ends.
func (s *fetchSet) start(digest string, fn func(), more func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.running[digest]; ok {
		return
	}
	s.running[digest] = struct{}{}
	s.all.Go(func() {
		for again := true; again; again = s.continues(digest, more) {
			fn()
		}
	})
}

// continues reports whether to run again. It decides with the lock of start held, so that no target is missed.
func (s *fetchSet) continues(digest string, more func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if more() {
		return true
	}
	delete(s.running, digest)
	return false
}

// fetch downloads a bundle in the background. It retries while the connection is open and a target waits for the bundle.
// The next connection continues an incomplete download.
func (n *connection) fetch(ctx context.Context, digest string) {
	more := func() bool { return ctx.Err() == nil && n.needsBundle(digest) }
	n.fetches.start(digest, func() {
		var delay backoff
		for more() {
			err := n.fetchOnce(ctx, digest)
			if err == nil || ctx.Err() != nil {
				return
			}
			n.cfg.Metrics.bundleRetries.Inc()
			n.log.Warn("fetching a bundle failed", obs.KeyDigest, digest, obs.Err(err))
			if errors.Is(err, errTooLarge) {
				n.setUnavailable(digest, err)
				continue // needsBundle reports it for the targets
			}
			if status.Code(err) == codes.NotFound || errors.Is(err, errBundle) {
				n.reportUnavailable(digest, err)
			}
			wait.For(ctx, delay.after(err, 0))
		}
	}, more)
}

// needsBundle reports whether a target waits for a bundle that may still become available. For one that cannot, it reports
// the reason for the targets that wait.
func (n *connection) needsBundle(digest string) bool {
	n.mu.Lock()
	reason := n.unavailable[digest]
	n.mu.Unlock()
	if reason != nil {
		n.reportUnavailable(digest, reason)
		return false
	}
	return n.isAwaited(digest)
}

func (n *connection) setUnavailable(digest string, reason error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unavailable[digest] = reason
}

// errBundle means that the download is complete and its content is wrong.
var errBundle = errors.New("the bundle does not match its digest")

// errTooLarge means that another attempt cannot succeed.
var errTooLarge = errors.New("too large for this agent")

func (n *connection) fetchOnce(ctx context.Context, digest string) error {
	select {
	case n.fetchSlots <- struct{}{}:
		defer func() { <-n.fetchSlots }()
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
	n.deliverFetched(digest, set)
	return nil
}

func (c *Client) unpack(digest string, content []byte) (*manifest.Set, error) {
	c.unpacking.Lock()
	defer c.unpacking.Unlock()
	return c.cfg.Unpack(digest, content)
}

// download continues where an earlier download stopped.
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
				n.setPartial(digest, nil) // the bytes on the server have changed: start over
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
			n.setPartial(digest, nil)
			return nil, fmt.Errorf("%w: it is longer than announced", errBundle)
		}
		content = append(content, resp.GetChunk()...)
		n.cfg.Metrics.bundleBytes.Add(float64(len(resp.GetChunk())))
		n.setPartial(digest, content)
	}
	if int64(len(content)) != total {
		return nil, fmt.Errorf("fetching bundle %s: it ended after %d of %d bytes", digest, len(content), total)
	}
	return content, nil
}

// setPartial stores an incomplete download; nil removes it.
func (n *connection) setPartial(digest string, content []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if content == nil {
		delete(n.partial, digest)
		return
	}
	n.partial[digest] = content
}
