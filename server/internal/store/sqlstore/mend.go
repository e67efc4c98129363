package sqlstore

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Mend returns text that every database can store: valid UTF-8 without NUL. Foreign text (a message of an
// agent, output of git) must not fail its batch.
func Mend(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func mendedRef(r fleet.ObjectRef) fleet.ObjectRef {
	r.Group, r.Version, r.Kind = Mend(r.Group), Mend(r.Version), Mend(r.Kind)
	r.Namespace, r.Name = Mend(r.Namespace), Mend(r.Name)
	return r
}

func mendedRefs(refs []fleet.ObjectRef) []fleet.ObjectRef {
	out := slices.Clone(refs)
	for i := range out {
		out[i] = mendedRef(out[i])
	}
	return out
}

func mendedObjects(objects []fleet.ObjectStatus) []fleet.ObjectStatus {
	out := slices.Clone(objects)
	for i := range out {
		o := &out[i]
		o.ObjectRef, o.Message = mendedRef(o.ObjectRef), Mend(o.Message)
		o.Sync, o.Health = fleet.SyncState(Mend(string(o.Sync))), fleet.Health(Mend(string(o.Health)))
	}
	return out
}
