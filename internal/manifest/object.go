package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Object is one Kubernetes object as written by its author.
type Object struct {
	// Ref identifies it. Namespace is the one in the object, "" if it has none, and always "" for kinds that
	// are known to be cluster-scoped.
	Ref fleet.ObjectRef
	// Source is its position for people: "apps/a.yaml", or "apps/a.yaml (document 2, item 3)". It is not part
	// of the canonical form and is "" after Decode.
	Source string
	// Content is the complete object, of the types that JSON decodes to in Kubernetes: map[string]any, []any,
	// string, int64, float64, bool, and nil.
	Content map[string]any
}

// Hash is the hex SHA-256 of the object's canonical form: equal hashes mean equal content.
func (o Object) Hash() string {
	sum := sha256.Sum256(o.canonical())
	return hex.EncodeToString(sum[:])
}

// Unstructured returns a deep copy that the caller may change.
func (o Object) Unstructured() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.Content)}
}

// canonical returns one JSON value with sorted keys, without white space and HTML escapes. Content has only
// types that JSON decodes to, so encoding cannot fail.
func (o Object) canonical() []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o.Content); err != nil {
		panic(fmt.Sprintf("manifest: %s holds a value that JSON has no form for: %v", o.Ref, err))
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// Error is a mistake of a user in a manifest.
type Error struct {
	Source   string // file
	Document int    // counted from 1; 0 for the whole file
	Line     int    // counted from 1 within the file; 0 if unknown
	Problem  string // the mistake and its remedy
}

func (e *Error) Error() string {
	where := e.Source
	if e.Line > 0 {
		where += fmt.Sprintf(":%d", e.Line)
	}
	if e.Document > 0 {
		where += fmt.Sprintf(" (document %d)", e.Document)
	}
	return where + ": " + e.Problem
}

// DuplicateError means that one object is defined twice: a mistake of a user.
type DuplicateError struct {
	Object        fleet.ObjectRef
	First, Second string // sources
}

func (e *DuplicateError) Error() string {
	if e.First == e.Second {
		return fmt.Sprintf("%s is defined twice in %s", e.Object, e.First)
	}
	return fmt.Sprintf("%s is defined twice: in %s and in %s", e.Object, e.First, e.Second)
}
