package offlinecache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
)

// Snapshot is the content of the cache.
type Snapshot struct {
	Agent   Agent            // zero when it is not stored
	Targets []engine.Desired // with their objects, ordered by ID
}

// Load reads the cache. It skips damaged, incomplete and foreign items and logs a warning.
func (p *Cache) Load(ctx context.Context) (Snapshot, error) {
	if p.cfg.Budget <= 0 {
		return Snapshot{}, nil
	}
	p.io.Lock()
	defer p.io.Unlock()
	return p.load(ctx)
}

func (p *Cache) load(ctx context.Context) (Snapshot, error) {
	s, items, err := p.readAll(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	out := p.decode(s, items)
	p.stored = s
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = s.agent
	for id := range s.digests {
		p.kept[id] = true
	}
	return out, nil
}

// readAll reads every slot. If an item exists twice, the newer one counts.
func (p *Cache) readAll(ctx context.Context) (*contents, map[string][]byte, error) {
	s := newContents()
	var slots [agentnames.Slots]map[string][]byte
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for n := range s.slots {
		group.Go(func() error {
			read, items, err := p.read(ctx, n)
			s.slots[n].version, s.slots[n].foreign, slots[n] = read.version, read.foreign, items
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	all := map[string][]byte{}
	for n := range slots {
		for key, content := range slots[n] {
			if was, twice := all[key]; twice && !newer(key, content, was) {
				continue
			}
			s.drop(key)
			s.put(n, key, len(content))
			all[key] = content
		}
	}
	return s, all, nil
}

// newer reports whether state a of a target is newer than b.
func newer(key string, a, b []byte) bool {
	one, err := decodeTarget(key, a)
	if err != nil {
		return false
	}
	other, err := decodeTarget(key, b)
	return err != nil || one.State.Compare(other.State.Version) > 0
}

// decode decodes the items and records the intact ones in s.
func (p *Cache) decode(s *contents, items map[string][]byte) Snapshot {
	var out Snapshot
	if item, ok := items[agentKey]; ok {
		var err error
		if out.Agent, err = decodeAgent(item); err != nil {
			p.cfg.Log.Warn("the cached configuration of this agent is unreadable", obs.Err(err))
		}
		s.agent = out.Agent
	}
	sets := p.bundles(s, items)
	for key, item := range items {
		if len(key) <= len(targetPrefix) || key[:len(targetPrefix)] != targetPrefix {
			continue
		}
		d, err := decodeTarget(key, item)
		if err == nil && sets[d.State.Digest] == nil {
			err = fmt.Errorf("bundle %s is missing or damaged", d.State.Digest)
		}
		if err != nil {
			p.cfg.Log.Warn("skipping the cached state of a target: the server has to send it again", obs.KeyTarget, key[len(targetPrefix):], obs.Err(err))
			continue
		}
		d.Objects = sets[d.State.Digest]
		s.digests[d.Target], s.states[d.Target] = d.State.Digest, string(item)
		out.Targets = append(out.Targets, d)
	}
	slices.SortFunc(out.Targets, func(a, b engine.Desired) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

// bundles decodes every complete bundle.
func (p *Cache) bundles(s *contents, items map[string][]byte) map[string]*manifest.Set {
	out := map[string]*manifest.Set{}
	tried := map[string]bool{}
	for key := range items {
		digest, n, ok := parsePart(key)
		if !ok || tried[digest] {
			continue
		}
		keys := partKeys(digest, n)
		set, err := open(digest, keys, items)
		if errors.Is(err, errIncomplete) {
			continue // the same bundle in another number of parts may be complete
		}
		tried[digest] = true
		if err != nil {
			p.cfg.Log.Warn("skipping a cached bundle", obs.KeyDigest, digest, obs.Err(err))
			continue
		}
		out[digest], s.parts[digest] = set, keys
	}
	return out
}

var errIncomplete = errors.New("a part is missing")

func open(digest string, keys []string, items map[string][]byte) (*manifest.Set, error) {
	var packed []byte
	for _, key := range keys {
		part, ok := items[key]
		if !ok {
			return nil, errIncomplete
		}
		packed = append(packed, part...)
	}
	return manifest.Unpack(digest, packed, wire.MaxBundleContent)
}
