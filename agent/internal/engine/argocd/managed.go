package argocd

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
)

// managedObjects are the objects that a source of the Application has had since it was created. Only they may be pruned: Argo CD
// also lists what an earlier Application with the same name left, as soon as its project allows the namespace and the kind.
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

// text returns the annotation. If it would be too long, it has the desired objects only: the others are held, not pruned.
func (m managedObjects) text(desired []string) string {
	if base64.RawStdEncoding.EncodedLen(len(m)*len(objectHash{})) > annotationLimit {
		m = managedObjects{}.add(desired)
	}
	hashes := slices.SortedFunc(maps.Keys(m), func(a, b objectHash) int { return bytes.Compare(a[:], b[:]) })
	var raw []byte
	for _, h := range hashes {
		raw = append(raw, h[:]...)
	}
	return base64.RawStdEncoding.EncodeToString(raw)
}
