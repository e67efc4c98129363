package builtin

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managed is one entry of metadata.managedFields, read where it stands. To have all of them converted, as
// GetManagedFields does, took a tenth of what applying an object costs.
type managed map[string]any

// managers returns the entries of a live object.
func managers(live *unstructured.Unstructured) []managed {
	metadata, _ := live.Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	out := make([]managed, 0, len(entries))
	for _, entry := range entries {
		if m, ok := entry.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func (m managed) text(key string) string {
	s, _ := m[key].(string)
	return s
}

func (m managed) manager() string     { return m.text("manager") }
func (m managed) subresource() string { return m.text("subresource") }

// written is when the entry was last written; zero when it does not say.
func (m managed) written() time.Time {
	at, err := time.Parse(time.RFC3339, m.text("time"))
	if err != nil {
		return time.Time{}
	}
	return at
}

// ours reports whether the entry names what we have applied.
func (m managed) ours() bool {
	return m.manager() == FieldManager && m.text("operation") == string(metav1.ManagedFieldsOperationApply) && m.subresource() == ""
}

// tree is FieldsV1 as it was decoded; nil when there is none.
func (m managed) tree() map[string]any {
	tree, _ := m["fieldsV1"].(map[string]any)
	return tree
}

// fields returns the fields of the entry; what cannot be read counts as none, which at worst applies the
// object once more.
func (m managed) fields() fieldSet {
	set, err := setOf(m.tree())
	if err != nil {
		return fieldSet{}
	}
	return set
}

// oursIn returns our entry of a live object, or nil.
func oursIn(live *unstructured.Unstructured) managed {
	entries := managers(live)
	if i := slices.IndexFunc(entries, managed.ours); i >= 0 {
		return entries[i]
	}
	return nil
}

// ourFields returns the fields of a live object that we own by server-side apply.
func ourFields(live *unstructured.Unstructured) fieldSet { return oursIn(live).fields() }

// rawOurFields is ourFields as they are written; nil when there are none.
func rawOurFields(live metav1.Object) []byte {
	if whole, ok := live.(*unstructured.Unstructured); ok {
		return oursIn(whole).raw()
	}
	for _, entry := range live.GetManagedFields() {
		if isOurs(entry) && entry.FieldsV1 != nil {
			return entry.FieldsV1.GetRawBytes()
		}
	}
	return nil
}

func (m managed) raw() []byte {
	if m.tree() == nil {
		return nil
	}
	text, err := json.Marshal(m.tree())
	if err != nil {
		return nil // it was decoded from JSON
	}
	return text
}

// isOurs is managed.ours of an entry of which only the metadata were read.
func isOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

// culprit names who changed paths of a drifted object: the managers that own them now, or the one
// that wrote last when nobody does, since a deleted field has no owner. "" when there is none.
func culprit(drifted *unstructured.Unstructured, paths []string) string {
	var owners []string
	var last managed
	for _, entry := range managers(drifted) {
		if entry.ours() {
			continue
		}
		set := entry.fields()
		if slices.ContainsFunc(paths, set.has) && !slices.Contains(owners, entry.manager()) {
			owners = append(owners, entry.manager())
		}
		if last == nil || entry.written().After(last.written()) {
			last = entry
		}
	}
	return cmp.Or(strings.Join(owners, ", "), last.manager())
}
