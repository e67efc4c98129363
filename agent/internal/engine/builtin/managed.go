package builtin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ourFields returns the fields of obj that we own by server-side apply.
func ourFields(obj *unstructured.Unstructured) fieldSet {
	for _, entry := range obj.GetManagedFields() {
		if isOurs(entry) {
			return entryFields(entry)
		}
	}
	return fieldSet{}
}

func isOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

// entryFields returns the fields of one entry; what cannot be read counts as none, which at worst
// applies the object once more.
func entryFields(entry metav1.ManagedFieldsEntry) fieldSet {
	if entry.FieldsV1 == nil {
		return fieldSet{}
	}
	set, err := parseFields(entry.FieldsV1.GetRawBytes())
	if err != nil {
		return fieldSet{}
	}
	return set
}

// culprit names who changed paths of a drifted object: the managers that own them now, or the one
// that wrote last when nobody does, since a deleted field has no owner. "" when there is none.
func culprit(drifted *unstructured.Unstructured, paths []string) string {
	var owners []string
	var last metav1.ManagedFieldsEntry
	for _, entry := range drifted.GetManagedFields() {
		if isOurs(entry) {
			continue
		}
		set := entryFields(entry)
		if slices.ContainsFunc(paths, set.has) && !slices.Contains(owners, entry.Manager) {
			owners = append(owners, entry.Manager)
		}
		if last.Manager == "" || written(entry).After(written(last)) {
			last = entry
		}
	}
	return cmp.Or(strings.Join(owners, ", "), last.Manager)
}

func written(entry metav1.ManagedFieldsEntry) time.Time {
	if entry.Time == nil {
		return time.Time{}
	}
	return entry.Time.Time
}
