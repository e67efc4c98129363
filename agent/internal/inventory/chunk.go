package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// LabelAgent names the agent that an object or an inventory belongs to.
	LabelAgent = "kedge.dev/agent"
	// LabelInventory marks a ConfigMap as part of the inventory of the target that it names.
	LabelInventory = "kedge.dev/inventory"

	// chunkLimit is where a chunk is full. An API server takes 1 MiB, but the whole object is
	// rewritten for every change of one entry, and etcd keeps old revisions.
	chunkLimit = 300 << 10
	dataKey    = "inventory.json"
	namePrefix = "kedge-inventory-"
)

// chunk is one ConfigMap of a inventory.
type chunk struct {
	resourceVersion string
	entries         map[Key]Entry
	size            int
}

// payload is what a chunk holds. Every chunk carries the header; the highest Seq is the newest.
type payload struct {
	Seq        int64  `json:"seq"`
	Target     string `json:"target"`
	Tenant     string `json:"tenant"`
	Deployment string `json:"deployment"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`
	Digest     string `json:"digest"`
	Base       int    `json:"base"`
	// Chunks are the numbers of all chunks that there were when this one was written.
	Chunks  []int        `json:"chunks"`
	Entries []entryLines `json:"entries"`
}

type entryLines struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Hash      string `json:"hash,omitempty"`
	Live      string `json:"live,omitempty"`
	Fields    string `json:"fields,omitempty"`
	UID       string `json:"uid,omitempty"`
	Wave      int    `json:"wave,omitempty"`
	Depth     int    `json:"depth,omitempty"`
	Held      Hold   `json:"held,omitempty"`
	Keep      string `json:"keep,omitempty"`
	Finished  Finish `json:"finished,omitempty"`
}

func chunkName(target fleet.TargetID, number int) string {
	return namePrefix + string(target) + "-" + strconv.Itoa(number)
}

// chunkNumber reads the number back from a name that chunkName made.
func chunkNumber(target fleet.TargetID, name string) (int, error) {
	rest, ok := strings.CutPrefix(name, namePrefix+string(target)+"-")
	number, err := strconv.Atoi(rest)
	if !ok || err != nil || number < 0 || chunkName(target, number) != name {
		return 0, fmt.Errorf("reading the inventory: %q is not the name of a chunk of %s", name, target)
	}
	return number, nil
}

// sizeOf is a generous estimate of what an entry takes in a chunk.
func sizeOf(e Entry) int {
	return 128 + len(e.Group) + len(e.Version) + len(e.Kind) + len(e.Namespace) + len(e.Name) + len(e.Hash) + len(e.Live) + len(e.Fields) + len(e.UID) +
		len(e.Held) + len(e.Keep) + len(e.Finished)
}

func (c *chunk) put(e Entry) {
	key := KeyOf(e.ObjectRef)
	c.drop(key)
	c.entries[key] = e
	c.size += sizeOf(e)
}

func (c *chunk) drop(key Key) {
	if e, ok := c.entries[key]; ok {
		c.size -= sizeOf(e)
		delete(c.entries, key)
	}
}

// encode makes the text of a chunk that holds entries under the header of rec.
func encode(rec Record, seq int64, chunks []int, entries map[Key]Entry) (string, error) {
	p := payload{
		Seq: seq, Target: string(rec.Target), Tenant: rec.Tenant, Deployment: rec.Deployment,
		Epoch: rec.Epoch, Generation: rec.Generation, Digest: rec.Digest, Base: rec.Base,
		Chunks: chunks, Entries: make([]entryLines, 0, len(entries)),
	}
	for _, e := range (Record{Entries: entries}).Sorted() {
		p.Entries = append(p.Entries, entryLines{
			Group: e.Group, Version: e.Version, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name,
			Hash: e.Hash, Live: e.Live, Fields: e.Fields, UID: e.UID, Wave: e.Wave, Depth: e.Depth, Held: e.Held, Keep: e.Keep, Finished: e.Finished,
		})
	}
	out, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("writing the inventory of %s: %w", rec.Target, err)
	}
	return string(out), nil
}

// decode reads one chunk. It fails on anything that encode would not have written: a chunk that is
// half understood must not be taken for the whole.
func decode(target fleet.TargetID, text string) (payload, error) {
	var p payload
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&p); err != nil {
		return payload{}, fmt.Errorf("reading the inventory of %s: %w", target, err)
	}
	if decoder.More() || p.Target != string(target) || p.Seq <= 0 || p.Entries == nil {
		return payload{}, fmt.Errorf("reading the inventory of %s: the chunk is incomplete or of another target", target)
	}
	if i := slices.IndexFunc(p.Entries, func(e entryLines) bool { return e.Kind == "" || e.Name == "" || e.Version == "" }); i >= 0 {
		return payload{}, fmt.Errorf("reading the inventory of %s: entry %d names no object", target, i)
	}
	return p, nil
}

func (e entryLines) entry() Entry {
	return Entry{
		ObjectRef: fleet.ObjectRef{Group: e.Group, Version: e.Version, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name},
		Hash:      e.Hash, Live: e.Live, Fields: e.Fields, UID: e.UID, Wave: e.Wave, Depth: e.Depth, Held: e.Held, Keep: e.Keep, Finished: e.Finished,
	}
}

// configMap makes the object that holds text.
func (inv *Inventory) configMap(number int, text, resourceVersion string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": chunkName(inv.saved.Target, number)},
		"data":     map[string]any{dataKey: text},
	}}
	obj.SetLabels(map[string]string{LabelAgent: string(inv.agent), LabelInventory: string(inv.saved.Target)})
	obj.SetResourceVersion(resourceVersion)
	return obj
}
