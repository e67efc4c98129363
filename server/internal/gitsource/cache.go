package gitsource

import (
	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/lru"
)

// maxCachedEntries limits the parsed folders that a mirror caches: about 30 MB, or 70 MB with the longest names.
const maxCachedEntries = 200_000

// treeCache holds parsed folders by the ids of their Git objects. An object never changes, so an entry is never stale.
type treeCache = lru.Cache[string, []filetree.Entry]

func newTreeCache(maxEntries int) *treeCache {
	// An empty folder costs memory too.
	return lru.New[string](maxEntries, func(entries []filetree.Entry) int { return len(entries) + 1 })
}
