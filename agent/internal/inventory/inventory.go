package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Inventory is the inventory of one target as the cluster holds it.
//
// Save, Reload and Delete write or read it, one at a time. The other methods return what is known of the cluster since the
// last of them ended; they may be called while one of them runs.
type Inventory struct {
	configMaps dynamic.ResourceInterface
	agent      fleet.AgentID
	seq        int64
	seqOf      map[Key]int64 // of the chunk that the entry was read from
	chunks     map[int]*chunk
	numbers    map[int]bool // of the chunks in the cluster
	listed     map[int]bool // chunks that the newest header names
	relabel    bool         // the chunks still carry the label of another agent

	// Save, Reload and Delete read what follows without the lock, since nobody else writes it.
	mu      sync.RWMutex
	saved   Record
	damaged []string // chunks that could not be read or found
	exists  bool
	stale   bool // a write ended without an answer: what the cluster holds is not known
}

func newInventory(configMaps dynamic.ResourceInterface, agent fleet.AgentID, target fleet.TargetID) *Inventory {
	return &Inventory{
		configMaps: configMaps, agent: agent, saved: Record{Target: target, Entries: map[Key]Entry{}},
		seqOf: map[Key]int64{}, chunks: map[int]*chunk{}, numbers: map[int]bool{}, listed: map[int]bool{},
	}
}

// Agent is the agent that owns the inventory.
func (inv *Inventory) Agent() fleet.AgentID { return inv.agent }

// SetAgent changes the agent that owns the inventory; the next Save writes it. Call it before the first Save.
func (inv *Inventory) SetAgent(agent fleet.AgentID) {
	inv.relabel = inv.relabel || inv.agent != agent && inv.Exists()
	inv.agent = agent
}

// Record returns a copy of what the cluster holds.
func (inv *Inventory) Record() Record {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.saved.clone()
}

// Deployment names the deployment of the target as tenant/name; "" when the cluster holds nothing.
func (inv *Inventory) Deployment() string {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	if inv.saved.Deployment == "" {
		return ""
	}
	return inv.saved.Tenant + "/" + inv.saved.Deployment
}

// Entry returns the entry of one object; the zero Entry when the cluster has none.
func (inv *Inventory) Entry(key Key) Entry {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.saved.Entries[key]
}

// Version returns the version that the cluster holds.
func (inv *Inventory) Version() fleet.Version {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.saved.Version
}

// Digest returns the digest of the last bundle that was applied whole.
func (inv *Inventory) Digest() string {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.saved.Digest
}

// Exists reports whether the cluster has an inventory of the target.
func (inv *Inventory) Exists() bool {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.exists
}

// Damaged names the ConfigMaps of the inventory that could not be read, or are missing. They are never overwritten. An
// inventory stays damaged until they are restored or all of it is removed.
func (inv *Inventory) Damaged() []string {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.damaged
}

// read adds one ConfigMap. Of an entry in two chunks, and of two headers, the newer counts.
func (inv *Inventory) read(cm *unstructured.Unstructured) {
	target := inv.saved.Target
	number, err := chunkNumber(target, cm.GetName())
	if err != nil {
		inv.damaged = append(inv.damaged, cm.GetName())
		return
	}
	inv.numbers[number] = true
	text, _, _ := unstructured.NestedString(cm.Object, "data", dataKey)
	p, err := decode(target, text)
	if err != nil {
		inv.damaged = append(inv.damaged, cm.GetName())
		return
	}
	if p.Seq > inv.seq {
		inv.seq = p.Seq
		inv.saved.Tenant, inv.saved.Deployment = p.Tenant, p.Deployment
		inv.saved.Version = fleet.Version{Epoch: p.Epoch, Generation: p.Generation}
		inv.saved.Digest, inv.saved.Base = p.Digest, p.Base
		inv.listed = map[int]bool{}
	}
	if p.Seq == inv.seq {
		// Of the chunks of one Save, the last one names all chunks.
		for _, n := range p.Chunks {
			inv.listed[n] = true
		}
	}
	c := &chunk{resourceVersion: cm.GetResourceVersion(), entries: map[Key]Entry{}}
	inv.chunks[number] = c
	for _, line := range p.Entries {
		e := line.entry()
		key := KeyOf(e.ObjectRef)
		c.put(e)
		if _, known := inv.saved.Entries[key]; !known || p.Seq > inv.seqOf[key] {
			inv.saved.Entries[key], inv.seqOf[key] = e, p.Seq
		}
	}
}

// complete ends reading: a chunk that the newest header names and that was not found is damage.
func (inv *Inventory) complete() {
	for _, number := range slices.Sorted(maps.Keys(inv.listed)) {
		if !inv.numbers[number] {
			inv.numbers[number] = true // its number stays in use
			inv.damaged = append(inv.damaged, chunkName(inv.saved.Target, number)+", which is missing")
		}
	}
	inv.seqOf, inv.listed = nil, nil // not needed any more
	inv.exists = len(inv.numbers) > 0
}

// ErrSuperseded means: the cluster has a newer version than the one to write. Another replica of the agent is ahead.
var ErrSuperseded = errors.New("the inventory is of a newer version")

// Save writes rec. It sends nothing when nothing differs, and otherwise only the chunks that differ. After an error the
// inventory may be partly written: call Reload before the next Save. A version older than the one in the cluster is
// refused with ErrSuperseded.
func (inv *Inventory) Save(ctx context.Context, rec Record) error {
	if inv.stale {
		return fmt.Errorf("writing the inventory of %s: what the cluster holds is not known", inv.saved.Target)
	}
	if rec.Compare(inv.saved.Version) < 0 {
		return fmt.Errorf("writing the inventory of %s: %w", inv.saved.Target, ErrSuperseded)
	}
	rec = rec.clone()
	rec.Target = inv.saved.Target
	dirty := inv.assign(rec)
	if inv.relabel {
		dirty = slices.Sorted(maps.Keys(inv.chunks))
	}
	if len(dirty) == 0 && rec.sameHeader(inv.saved) {
		return nil
	}
	if len(dirty) == 0 {
		dirty = []int{inv.first()}
	}
	inv.set(func() { inv.stale, inv.exists = true, true })
	inv.seq++
	writes := inv.schedule(dirty)
	empty := map[int]bool{}
	for _, number := range dirty {
		if len(inv.chunks[number].entries) == 0 && number != writes[len(writes)-1] {
			empty[number] = true
		}
	}
	for _, number := range writes {
		if err := inv.write(ctx, rec, number, empty); err != nil {
			return err
		}
	}
	// The last chunk has the header by now, so the empty chunks are not needed any more.
	for _, number := range slices.Sorted(maps.Keys(empty)) {
		if err := inv.remove(ctx, number); err != nil {
			return err
		}
	}
	inv.relabel = false
	inv.set(func() { inv.saved, inv.stale = rec, false })
	return nil
}

// set changes what the other methods return.
func (inv *Inventory) set(change func()) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	change()
}

// schedule returns the order of the writes: new chunks first, so that no header names a chunk that does not exist yet,
// and last a chunk whose header names them all.
func (inv *Inventory) schedule(dirty []int) []int {
	var fresh, known []int
	for _, number := range dirty {
		if inv.chunks[number].resourceVersion == "" {
			fresh = append(fresh, number)
		} else {
			known = append(known, number)
		}
	}
	if len(fresh) > 0 && len(known) == 0 && len(inv.chunks) > 1 {
		known = []int{inv.first()}
	}
	slices.Reverse(known) // the lowest one stays when all are empty
	return append(fresh, known...)
}

// present returns the chunks that exist when the chunk number is written, including those that could not be read or
// found, without those that are about to be removed.
func (inv *Inventory) present(number int, leaving map[int]bool) []int {
	var out []int
	for _, n := range slices.Sorted(maps.Keys(inv.numbers)) {
		c := inv.chunks[n]
		if !leaving[n] && (n == number || c == nil || c.resourceVersion != "") {
			out = append(out, n)
		}
	}
	return out
}

// assign updates the entries of the chunks to rec and returns the numbers of those that changed, sorted. Entries stay in
// their chunk, so that a change writes one.
func (inv *Inventory) assign(rec Record) []int {
	dirty := map[int]bool{}
	placed := map[Key]bool{}
	for _, number := range slices.Sorted(maps.Keys(inv.chunks)) {
		c := inv.chunks[number]
		for key, held := range maps.Clone(c.entries) {
			want, ok := rec.Entries[key]
			switch {
			case !ok || placed[key]:
				c.drop(key)
				dirty[number] = true
			case want != held:
				c.put(want)
				dirty[number] = true
			}
			placed[key] = placed[key] || ok
		}
	}
	for _, e := range rec.Sorted() {
		if placed[KeyOf(e.ObjectRef)] {
			continue
		}
		number := inv.chunkFor(sizeOf(e))
		inv.chunks[number].put(e)
		dirty[number] = true
	}
	return slices.Sorted(maps.Keys(dirty))
}

// chunkFor returns the number of a chunk that has size bytes left. It makes one if there is none.
func (inv *Inventory) chunkFor(size int) int {
	for _, number := range slices.Sorted(maps.Keys(inv.chunks)) {
		if inv.chunks[number].size+size <= chunkLimit {
			return number
		}
	}
	return inv.add()
}

// first returns the lowest chunk. It makes one if there is none.
func (inv *Inventory) first() int {
	if len(inv.chunks) == 0 {
		return inv.add()
	}
	return slices.Min(slices.Collect(maps.Keys(inv.chunks)))
}

// add makes an empty chunk with a number that is not in use.
func (inv *Inventory) add() int {
	number := 0
	for inv.numbers[number] {
		number++
	}
	inv.numbers[number] = true
	inv.chunks[number] = &chunk{entries: map[Key]Entry{}}
	return number
}

func (inv *Inventory) write(ctx context.Context, rec Record, number int, leaving map[int]bool) error {
	c := inv.chunks[number]
	text, err := encode(rec, inv.seq, inv.present(number, leaving), c.entries)
	if err != nil {
		return err
	}
	obj := inv.configMap(number, text, c.resourceVersion)
	var out *unstructured.Unstructured
	if c.resourceVersion == "" {
		out, err = inv.configMaps.Create(ctx, obj, metav1.CreateOptions{})
	} else {
		out, err = inv.configMaps.Update(ctx, obj, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the inventory of %s: %w", rec.Target, err)
	}
	c.resourceVersion = out.GetResourceVersion()
	return nil
}

func (inv *Inventory) remove(ctx context.Context, number int) error {
	// Bound to the version that was last read or written: another replica may have continued it.
	version := inv.chunks[number].resourceVersion
	err := inv.configMaps.Delete(ctx, chunkName(inv.saved.Target, number), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing a part of the inventory of %s: %w", inv.saved.Target, err)
	}
	delete(inv.chunks, number)
	delete(inv.numbers, number)
	inv.set(func() { inv.exists = len(inv.numbers) > 0 })
	return nil
}

// Stale reports whether a write failed, so that Reload is due.
func (inv *Inventory) Stale() bool {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.stale
}

// Reload reads the inventory again.
func (inv *Inventory) Reload(ctx context.Context) error {
	items, err := list(ctx, inv.configMaps, LabelInventory+"="+string(inv.saved.Target))
	if err != nil {
		return err
	}
	fresh := newInventory(inv.configMaps, inv.agent, inv.saved.Target)
	for i := range items {
		fresh.read(&items[i])
		fresh.relabel = fresh.relabel || items[i].GetLabels()[LabelAgent] != string(inv.agent)
	}
	fresh.complete()
	inv.seq, inv.seqOf, inv.chunks, inv.numbers, inv.listed, inv.relabel = fresh.seq, nil, fresh.chunks, fresh.numbers, nil, fresh.relabel
	inv.set(func() {
		inv.saved, inv.damaged, inv.exists, inv.stale = fresh.saved, fresh.damaged, fresh.exists, false
	})
	return nil
}

// Delete removes the inventory. A damaged one is refused: it may name objects that still exist.
func (inv *Inventory) Delete(ctx context.Context) error {
	if len(inv.damaged) > 0 {
		return fmt.Errorf("removing the inventory of %s: %s cannot be read and may name objects that still exist", inv.saved.Target, inv.damaged[0])
	}
	if len(inv.chunks) > 1 {
		// Down to one chunk first: a removal that stops in between must not look like damage.
		rec := inv.Record()
		rec.Entries = nil
		if err := inv.Save(ctx, rec); err != nil {
			return err
		}
	}
	inv.set(func() { inv.stale = true })
	for _, number := range slices.Sorted(maps.Keys(inv.chunks)) {
		if err := inv.remove(ctx, number); err != nil {
			return err
		}
	}
	inv.set(func() { inv.saved, inv.stale = Record{Target: inv.saved.Target, Entries: map[Key]Entry{}}, false })
	return nil
}
