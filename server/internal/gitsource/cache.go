package gitsource

import (
	"container/list"
	"sync"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// maxCachedEntries bounds the parsed folders that a mirror keeps: about 30 MB, with the longest of names 70.
const maxCachedEntries = 200_000

// treeCache keeps the parsed folders that were used last, by the names of their objects, so that
// an entry is never stale.
type treeCache struct {
	max int

	mu      sync.Mutex
	size    int
	byID    map[string]*list.Element
	recency *list.List // of *cachedTree, newest first
}

type cachedTree struct {
	id      string
	entries []filetree.Entry
}

func newTreeCache(maxEntries int) *treeCache {
	return &treeCache{max: maxEntries, byID: map[string]*list.Element{}, recency: list.New()}
}

func (c *treeCache) get(id string) ([]filetree.Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok {
		return nil, false
	}
	c.recency.MoveToFront(e)
	return e.Value.(*cachedTree).entries, true
}

func (c *treeCache) put(id string, entries []filetree.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byID[id]; ok {
		return
	}
	c.byID[id] = c.recency.PushFront(&cachedTree{id: id, entries: entries})
	c.size += len(entries) + 1 // an empty folder takes room too
	for c.size > c.max && c.recency.Len() > 1 {
		oldest := c.recency.Remove(c.recency.Back()).(*cachedTree)
		delete(c.byID, oldest.id)
		c.size -= len(oldest.entries) + 1
	}
}

func (c *treeCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byID)
	c.recency.Init()
	c.size = 0
}
