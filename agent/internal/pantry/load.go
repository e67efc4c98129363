package pantry

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

// Contents is what was kept.
type Contents struct {
	Agent   Agent            // zero when nothing is known of it
	Targets []engine.Desired // with their objects, in the order of their ids
}

// Load reads what is kept. What is damaged, incomplete or foreign is left out with a warning.
func (p *Pantry) Load(ctx context.Context) (Contents, error) {
	if p.cfg.Budget <= 0 {
		return Contents{}, nil
	}
	p.working.Lock()
	defer p.working.Unlock()
	return p.load(ctx)
}

func (p *Pantry) load(ctx context.Context) (Contents, error) {
	s, items, err := p.readAll(ctx)
	if err != nil {
		return Contents{}, err
	}
	out := p.decode(s, items)
	p.stock = s
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = s.agent
	for id := range s.digests {
		p.kept[id] = true
	}
	return out, nil
}

// readAll reads every slot. Of an item that is there twice the one that was written last counts, as
// far as that can be told.
func (p *Pantry) readAll(ctx context.Context) (*stock, map[string][]byte, error) {
	s := newStock()
	var contents [agentnames.Slots]map[string][]byte
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for n := range s.slots {
		group.Go(func() error {
			read, items, err := p.read(ctx, n)
			s.slots[n].version, s.slots[n].foreign, contents[n] = read.version, read.foreign, items
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	all := map[string][]byte{}
	for n := range contents {
		for key, content := range contents[n] {
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

// newer reports whether a state was written after another one of its target.
func newer(key string, a, b []byte) bool {
	one, err := decodeTarget(key, a)
	if err != nil {
		return false
	}
	other, err := decodeTarget(key, b)
	return err != nil || one.State.Compare(other.State.Version) > 0
}

// decode finds out what the items mean, and notes in the stock what of it can be relied on.
func (p *Pantry) decode(s *stock, items map[string][]byte) Contents {
	var out Contents
	if item, ok := items[agentKey]; ok {
		var err error
		if out.Agent, err = decodeAgent(item); err != nil {
			p.cfg.Log.Warn("what the server said of this agent cannot be read back", obs.Err(err))
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
			p.cfg.Log.Warn("what was kept of a target is left out: the server has to send it again", obs.KeyTarget, key[len(targetPrefix):], obs.Err(err))
			continue
		}
		d.Objects = sets[d.State.Digest]
		s.digests[d.Target], s.states[d.Target] = d.State.Digest, string(item)
		out.Targets = append(out.Targets, d)
	}
	slices.SortFunc(out.Targets, func(a, b engine.Desired) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

// bundles opens every bundle that is there whole.
func (p *Pantry) bundles(s *stock, items map[string][]byte) map[string]*manifest.Set {
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
			continue // another number of parts may be whole
		}
		tried[digest] = true
		if err != nil {
			p.cfg.Log.Warn("a bundle that was kept is left out", obs.KeyDigest, digest, obs.Err(err))
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
