package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Text is an object in its canonical form, which needs a fraction of the memory of its content. The zero value
// is no object.
type Text struct{ canonical string }

// Text returns the object as text.
func (o Object) Text() Text { return Text{string(o.canonical())} }

// Hash returns the hash of the object.
func (t Text) Hash() string {
	sum := sha256.Sum256([]byte(t.canonical))
	return hex.EncodeToString(sum[:])
}

// Object decodes the object, as from a bundle. The caller may change it.
func (t Text) Object() Object {
	value, err := decodeCanonical([]byte(t.canonical))
	content, ok := value.(map[string]any)
	if err != nil || !ok {
		panic(fmt.Sprintf("manifest: decoding the text of an object: %v", err))
	}
	ref, err := identify(content)
	if err != nil {
		panic(fmt.Sprintf("manifest: decoding the text of an object: %v", err))
	}
	return Object{Ref: ref, Content: content}
}
