package offlinecache

import (
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/agentnames"
)

// preferredSize is the size up to which a Secret is filled while others have space: for a change of a small item
// the API server writes the whole Secret.
const preferredSize = 64 << 10

// layout records the slot and size of each item.
type layout struct {
	slots [agentnames.Slots]slot
	at    map[string]int // item -> slot
	used  int
}

type slot struct {
	version string // resourceVersion; "" when the Secret does not exist
	foreign bool   // not created by an agent: never changed
	items   map[string]int
	used    int
}

func newLayout() *layout {
	l := &layout{at: map[string]int{}}
	for n := range l.slots {
		l.slots[n].items = map[string]int{}
	}
	return l
}

func (l *layout) put(n int, key string, size int) {
	l.slots[n].items[key] = size
	l.slots[n].used += size + len(key)
	l.used += size + len(key)
	l.at[key] = n
}

func (l *layout) drop(key string) {
	n, ok := l.at[key]
	if !ok {
		return
	}
	size := l.slots[n].items[key] + len(key)
	l.slots[n].used -= size
	l.used -= size
	delete(l.slots[n].items, key)
	delete(l.at, key)
}

// findSlot returns a slot with space for size more bytes, near if it has space, or -1.
func (l *layout) findSlot(near, size, budget int) int {
	if l.used+size > budget {
		return -1
	}
	fits := func(n, limit int) bool { return !l.slots[n].foreign && l.slots[n].used+size <= limit }
	if near >= 0 && fits(near, agentnames.SlotSize) {
		return near
	}
	least := -1
	for n := range l.slots {
		if fits(n, preferredSize) {
			return n
		}
		if fits(n, agentnames.SlotSize) && (least < 0 || l.slots[n].used < l.slots[least].used) {
			least = n
		}
	}
	return least
}

// edit is a change of one Secret; a nil item is removed.
type edit map[string][]byte

// edits maps slots to their changes.
type edits map[int]edit

func (e edits) set(n int, key string, content []byte) {
	if e[n] == nil {
		e[n] = edit{}
	}
	e[n][key] = content
}

// batch is the changes of one write, in this order: new bundles, the states that refer to them, unused items.
type batch struct{ bundles, states, unused edits }

func newBatch() batch { return batch{bundles: edits{}, states: edits{}, unused: edits{}} }

// writes returns the batch in the order of sending. A batch that changes only one Secret is one write.
func (b batch) writes() []write {
	var out []write
	touched := map[int]bool{}
	for _, phase := range []edits{b.bundles, b.states, b.unused} {
		for _, n := range slices.Sorted(maps.Keys(phase)) {
			if len(phase[n]) > 0 {
				out, touched[n] = append(out, write{n, phase[n]}), true
			}
		}
	}
	if len(touched) != 1 {
		return out
	}
	one := write{out[0].slot, edit{}}
	for _, w := range out {
		maps.Copy(one.edit, w.edit)
	}
	return []write{one}
}

type write struct {
	slot int
	edit edit
}
