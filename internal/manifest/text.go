package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Text is an object in its canonical form, for whoever keeps many: it takes a fraction of the memory that
// their content does. The zero value is none.
type Text struct{ canonical string }

// Text returns the object as text.
func (o Object) Text() Text { return Text{string(o.canonical())} }

// Hash is that of the object.
func (t Text) Hash() string {
	sum := sha256.Sum256([]byte(t.canonical))
	return hex.EncodeToString(sum[:])
}

// Object returns the object anew, as one that was decoded from a bundle. The caller may change it.
func (t Text) Object() Object {
	value, err := decodeCanonical([]byte(t.canonical))
	content, ok := value.(map[string]any)
	if err != nil || !ok {
		panic(fmt.Sprintf("manifest: a text that was made from an object is none: %v", err))
	}
	ref, err := identify(content)
	if err != nil {
		panic(fmt.Sprintf("manifest: a text that was made from an object is none: %v", err))
	}
	return Object{Ref: ref, Content: content}
}
