package lru_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/lru"
)

func has(c *lru.Cache[string, string], keys ...string) (out string) {
	for _, key := range keys {
		if _, ok := c.Get(key); ok {
			out += key
		}
	}
	return out
}

func TestCacheEvictsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	c := lru.New[string](4, func(v string) int { return len(v) })
	c.Put("a", "1")
	c.Put("b", "22")
	c.Put("c", "3")
	if _, ok := c.Get("a"); !ok {
		t.Fatal("the cache evicted a value within its limit")
	}
	c.Put("d", "4")
	if got := has(c, "a", "b", "c", "d"); got != "acd" {
		t.Errorf("the cache has %q, want acd: b is the least recently used", got)
	}
	c.Put("a", "1111")
	if v, _ := c.Get("a"); v != "1" {
		t.Errorf("the value of a is %q, want the first one", v)
	}
	c.Put("e", "55555")
	if got := has(c, "a", "c", "d", "e"); got != "e" {
		t.Errorf("the cache has %q, want e alone: it exceeds the limit", got)
	}
	c.Clear()
	c.Put("f", "6666")
	if got := has(c, "a", "c", "d", "f"); got != "f" {
		t.Errorf("the cache has %q, want f: Clear frees the whole limit", got)
	}
}
