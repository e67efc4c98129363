package pantry

import (
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/agentnames"
)

// comfortable is how full a Secret is made while there are others: a change of a small item has the
// API server write the whole Secret.
const comfortable = 64 << 10

// layout says where each item is. It knows sizes, not contents.
type layout struct {
	slots [agentnames.Slots]slot
	at    map[string]int // item -> slot
	used  int
}

type slot struct {
	version string // "" when the Secret does not exist
	foreign bool   // it is somebody else's: never touched
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

// room finds a slot for size more bytes, near if that has room, or -1.
func (l *layout) room(near, size, budget int) int {
	if l.used+size > budget {
		return -1
	}
	fits := func(n, limit int) bool { return !l.slots[n].foreign && l.slots[n].used+size <= limit }
	if near >= 0 && fits(near, agentnames.SlotSize) {
		return near
	}
	least := -1
	for n := range l.slots {
		if fits(n, comfortable) {
			return n
		}
		if fits(n, agentnames.SlotSize) && (least < 0 || l.slots[n].used < l.slots[least].used) {
			least = n
		}
	}
	return least
}

// edit is a change of one Secret: nil drops an item.
type edit map[string][]byte

// edits are changes by slot.
type edits map[int]edit

func (e edits) set(n int, key string, content []byte) {
	if e[n] == nil {
		e[n] = edit{}
	}
	e[n][key] = content
}

// batch is what brings the Secrets up to date: bundles that nothing names yet, then the states that
// name them, and at last what nothing names any more.
type batch struct{ bundles, states, waste edits }

func newBatch() batch { return batch{bundles: edits{}, states: edits{}, waste: edits{}} }

// writes is the batch in the order in which it is sent. What is all in one Secret is one write.
func (b batch) writes() []write {
	var out []write
	touched := map[int]bool{}
	for _, phase := range []edits{b.bundles, b.states, b.waste} {
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
