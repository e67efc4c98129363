package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Inventory is the record of one target as the cluster holds it.
type Inventory struct {
	configMaps dynamic.ResourceInterface
	agent      fleet.AgentID
	saved      Record
	seq        int64
	seqOf      map[Key]int64 // of the chunk that the entry was read from
	chunks     map[int]*chunk
	damaged    []string // chunks that could not be read or found
	numbers    map[int]bool
	listed     map[int]bool // chunks that the newest header names
	stale      bool         // a write ended without an answer: what the cluster holds is not known
	relabel    bool         // the chunks still carry the name of another agent
}

func newInventory(configMaps dynamic.ResourceInterface, agent fleet.AgentID, target fleet.TargetID) *Inventory {
	return &Inventory{
		configMaps: configMaps, agent: agent, saved: Record{Target: target, Entries: map[Key]Entry{}},
		seqOf: map[Key]int64{}, chunks: map[int]*chunk{}, numbers: map[int]bool{}, listed: map[int]bool{},
	}
}

// Agent is who the inventory belongs to.
func (b *Inventory) Agent() fleet.AgentID { return b.agent }

// SetAgent makes the inventory that of agent. The next Save writes that down.
func (b *Inventory) SetAgent(agent fleet.AgentID) {
	b.relabel = b.relabel || b.agent != agent && b.Exists()
	b.agent = agent
}

// Record returns a copy of what the cluster holds.
func (b *Inventory) Record() Record { return b.saved.clone() }

// Deployment names the deployment of the target as tenant/name; "" when the cluster holds nothing.
func (b *Inventory) Deployment() string {
	if b.saved.Deployment == "" {
		return ""
	}
	return b.saved.Tenant + "/" + b.saved.Deployment
}

// Entry returns what the cluster holds of one object; the zero Entry when nothing.
func (b *Inventory) Entry(key Key) Entry { return b.saved.Entries[key] }

// Version returns the version that the cluster holds.
func (b *Inventory) Version() fleet.Version { return b.saved.Version }

// Digest returns the bundle that the cluster holds as applied whole.
func (b *Inventory) Digest() string { return b.saved.Digest }

// Exists reports whether the cluster holds anything of this inventory.
func (b *Inventory) Exists() bool { return len(b.numbers) > 0 }

// Damaged names the ConfigMaps of this inventory that could not be read, or are missing. They are never
// overwritten, and a inventory stays damaged until they are restored or the whole inventory is removed.
func (b *Inventory) Damaged() []string { return b.damaged }

// read adds one ConfigMap to the inventory: of an entry in two chunks, and of two headers, the newer counts.
func (b *Inventory) read(cm *unstructured.Unstructured) {
	target := b.saved.Target
	number, err := chunkNumber(target, cm.GetName())
	if err != nil {
		b.damaged = append(b.damaged, cm.GetName())
		return
	}
	b.numbers[number] = true
	text, _, _ := unstructured.NestedString(cm.Object, "data", dataKey)
	p, err := decode(target, text)
	if err != nil {
		b.damaged = append(b.damaged, cm.GetName())
		return
	}
	if p.Seq > b.seq {
		b.seq = p.Seq
		b.saved.Tenant, b.saved.Deployment = p.Tenant, p.Deployment
		b.saved.Version = fleet.Version{Epoch: p.Epoch, Generation: p.Generation}
		b.saved.Digest, b.saved.Base = p.Digest, p.Base
		b.listed = map[int]bool{}
	}
	if p.Seq == b.seq {
		// What was written together names what there was then: the last of it names all.
		for _, n := range p.Chunks {
			b.listed[n] = true
		}
	}
	c := &chunk{resourceVersion: cm.GetResourceVersion(), entries: map[Key]Entry{}}
	b.chunks[number] = c
	for _, line := range p.Entries {
		e := line.entry()
		key := KeyOf(e.ObjectRef)
		c.put(e)
		if _, known := b.saved.Entries[key]; !known || p.Seq > b.seqOf[key] {
			b.saved.Entries[key], b.seqOf[key] = e, p.Seq
		}
	}
}

// complete ends reading: a chunk that the newest header names and that was not there is damage.
func (b *Inventory) complete() {
	for _, number := range slices.Sorted(maps.Keys(b.listed)) {
		if !b.numbers[number] {
			b.numbers[number] = true // its number is not given to another
			b.damaged = append(b.damaged, chunkName(b.saved.Target, number)+", which is missing")
		}
	}
	b.seqOf, b.listed = nil, nil // of use only until here
}

// ErrSuperseded says that the cluster holds a newer version than the one that was to be written:
// another replica of the agent is ahead.
var ErrSuperseded = errors.New("the inventory is of a newer version")

// Save makes the cluster hold rec. It sends nothing when nothing differs and otherwise writes
// only the chunks that do. After an error the inventory may be partly written: call Reload before the
// next Save. An older version than the cluster holds is refused with ErrSuperseded.
func (b *Inventory) Save(ctx context.Context, rec Record) error {
	if b.stale {
		return fmt.Errorf("writing the inventory of %s: what the cluster holds is not known", b.saved.Target)
	}
	if rec.Compare(b.saved.Version) < 0 {
		return fmt.Errorf("writing the inventory of %s: %w", b.saved.Target, ErrSuperseded)
	}
	rec = rec.clone()
	rec.Target = b.saved.Target
	dirty := b.assign(rec)
	if b.relabel {
		dirty = slices.Sorted(maps.Keys(b.chunks))
	}
	if len(dirty) == 0 && rec.sameHeader(b.saved) {
		return nil
	}
	if len(dirty) == 0 {
		dirty = []int{b.first()}
	}
	b.stale = true
	b.seq++
	writes := b.schedule(dirty)
	empty := map[int]bool{}
	for _, number := range dirty {
		if len(b.chunks[number].entries) == 0 && number != writes[len(writes)-1] {
			empty[number] = true
		}
	}
	for _, number := range writes {
		if err := b.write(ctx, rec, number, empty); err != nil {
			return err
		}
	}
	// The header is in the last one by now, so that an empty chunk carries nothing any more.
	for _, number := range slices.Sorted(maps.Keys(empty)) {
		if err := b.remove(ctx, number); err != nil {
			return err
		}
	}
	b.saved, b.stale, b.relabel = rec, false, false
	return nil
}

// schedule returns the order in which to write: new chunks first, so that no header ever names one
// that is yet to come, and at last one whose header names them all.
func (b *Inventory) schedule(dirty []int) []int {
	var fresh, known []int
	for _, number := range dirty {
		if b.chunks[number].resourceVersion == "" {
			fresh = append(fresh, number)
		} else {
			known = append(known, number)
		}
	}
	if len(fresh) > 0 && len(known) == 0 && len(b.chunks) > 1 {
		known = []int{b.first()}
	}
	slices.Reverse(known) // the lowest is the one that stays when all are empty
	return append(fresh, known...)
}

// present lists the chunks that there are when the chunk number is written, those that could not be
// read or found among them, without those that are about to be removed.
func (b *Inventory) present(number int, leaving map[int]bool) []int {
	var out []int
	for _, n := range slices.Sorted(maps.Keys(b.numbers)) {
		c := b.chunks[n]
		if !leaving[n] && (n == number || c == nil || c.resourceVersion != "") {
			out = append(out, n)
		}
	}
	return out
}

// assign brings the entries of the chunks in line with rec and returns, sorted, the numbers of
// those that changed. Entries stay in the chunk that they are in, so that a change writes one.
func (b *Inventory) assign(rec Record) []int {
	dirty := map[int]bool{}
	placed := map[Key]bool{}
	for _, number := range slices.Sorted(maps.Keys(b.chunks)) {
		c := b.chunks[number]
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
		number := b.chunkFor(sizeOf(e))
		b.chunks[number].put(e)
		dirty[number] = true
	}
	return slices.Sorted(maps.Keys(dirty))
}

// chunkFor returns the number of a chunk that has size bytes left, making one if there is none.
func (b *Inventory) chunkFor(size int) int {
	for _, number := range slices.Sorted(maps.Keys(b.chunks)) {
		if b.chunks[number].size+size <= chunkLimit {
			return number
		}
	}
	return b.add()
}

// first returns the lowest chunk, making one if there is none.
func (b *Inventory) first() int {
	if len(b.chunks) == 0 {
		return b.add()
	}
	return slices.Min(slices.Collect(maps.Keys(b.chunks)))
}

// add makes an empty chunk under a number that nothing in the cluster has.
func (b *Inventory) add() int {
	number := 0
	for b.numbers[number] {
		number++
	}
	b.numbers[number] = true
	b.chunks[number] = &chunk{entries: map[Key]Entry{}}
	return number
}

func (b *Inventory) write(ctx context.Context, rec Record, number int, leaving map[int]bool) error {
	c := b.chunks[number]
	text, err := encode(rec, b.seq, b.present(number, leaving), c.entries)
	if err != nil {
		return err
	}
	obj := b.configMap(number, text, c.resourceVersion)
	var out *unstructured.Unstructured
	if c.resourceVersion == "" {
		out, err = b.configMaps.Create(ctx, obj, metav1.CreateOptions{})
	} else {
		out, err = b.configMaps.Update(ctx, obj, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the inventory of %s: %w", rec.Target, err)
	}
	c.resourceVersion = out.GetResourceVersion()
	return nil
}

func (b *Inventory) remove(ctx context.Context, number int) error {
	// Bound to what was read or written last: another replica may have gone on with it.
	version := b.chunks[number].resourceVersion
	err := b.configMaps.Delete(ctx, chunkName(b.saved.Target, number), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing a part of the inventory of %s: %w", b.saved.Target, err)
	}
	delete(b.chunks, number)
	delete(b.numbers, number)
	return nil
}

// Stale reports whether a write failed, so that Reload is due.
func (b *Inventory) Stale() bool { return b.stale }

// Reload reads the inventory again.
func (b *Inventory) Reload(ctx context.Context) error {
	items, err := list(ctx, b.configMaps, LabelInventory+"="+string(b.saved.Target))
	if err != nil {
		return err
	}
	fresh := newInventory(b.configMaps, b.agent, b.saved.Target)
	for i := range items {
		fresh.read(&items[i])
		fresh.relabel = fresh.relabel || items[i].GetLabels()[LabelAgent] != string(b.agent)
	}
	fresh.complete()
	*b = *fresh
	return nil
}

// Delete removes the whole inventory. A damaged one is refused: it may name objects that still exist.
func (b *Inventory) Delete(ctx context.Context) error {
	if len(b.damaged) > 0 {
		return fmt.Errorf("removing the inventory of %s: %s cannot be read and may name objects that still exist", b.saved.Target, b.damaged[0])
	}
	if len(b.chunks) > 1 {
		// Down to one chunk first: a removal that stops half way must not look like damage.
		rec := b.Record()
		rec.Entries = nil
		if err := b.Save(ctx, rec); err != nil {
			return err
		}
	}
	b.stale = true
	for _, number := range slices.Sorted(maps.Keys(b.chunks)) {
		if err := b.remove(ctx, number); err != nil {
			return err
		}
	}
	b.saved = Record{Target: b.saved.Target, Entries: map[Key]Entry{}}
	b.stale = false
	return nil
}
