package argocd

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
)

// managedObjects are the objects that a source of the Application has had since it was created. Only they may be pruned: Argo CD
// tracks objects by the name of the Application, and also lists what an earlier one with this name left, as soon as its project
// allows the namespace and the kind.
type managedObjects map[objectHash]bool

// objectHash is the start of the hash of a name: an annotation has room for the names of a few hundred objects only.
type objectHash [6]byte

func hashOf(name string) (out objectHash) {
	sum := sha256.Sum256([]byte(name))
	copy(out[:], sum[:])
	return out
}

// managed returns the objects that the Application may prune. A text that it cannot read counts as none.
func (a *application) managed() managedObjects {
	out := managedObjects{}
	if a == nil {
		return out
	}
	raw, err := base64.RawStdEncoding.DecodeString(a.annotation(annotationManaged))
	if err != nil {
		return out
	}
	for part := range slices.Chunk(raw, len(objectHash{})) {
		if len(part) == len(objectHash{}) {
			out[objectHash(part)] = true
		}
	}
	return out
}

func (m managedObjects) has(name string) bool { return m[hashOf(name)] }

func (m managedObjects) add(names []string) managedObjects {
	for _, name := range names {
		m[hashOf(name)] = true
	}
	return m
}

// text returns the annotation.
func (m managedObjects) text() string {
	hashes := slices.SortedFunc(maps.Keys(m), func(a, b objectHash) int { return bytes.Compare(a[:], b[:]) })
	raw := make([]byte, 0, len(hashes)*len(objectHash{}))
	for _, h := range hashes {
		raw = append(raw, h[:]...)
	}
	return base64.RawStdEncoding.EncodeToString(raw)
}

// managed returns the annotation from now on: with the objects that the server has rendered from the source, and those that Argo CD
// has found in it, which may be others. If it becomes too long, it loses objects that do not exist.
func (t *target) managed(app *application) string {
	m := app.managed()
	var listed []string
	if app != nil {
		for _, r := range app.objects() {
			listed = append(listed, r.ref().String())
			if !r.RequiresPruning && !t.work.State.Policy.DryRun {
				m.add(listed[len(listed)-1:])
			}
		}
	}
	if t.work.State.Policy.DryRun { // nothing is applied
		return m.text()
	}
	if text := m.add(t.work.Source.Objects).text(); len(text) <= annotationLimit {
		return text
	}
	exist := managedObjects{}.add(listed)
	maps.DeleteFunc(m, func(h objectHash, _ bool) bool { return !exist[h] })
	return m.add(t.work.Source.Objects).text()
}
