package fleet

import (
	"maps"
	"slices"
)

// Equal reports whether two sources name the same files and render them in the same way.
func (s Source) Equal(o Source) bool {
	return s.RepoURL == o.RepoURL && s.Path == o.Path && s.Revision == o.Revision &&
		s.Kind == o.Kind && s.Helm.Equal(o.Helm) && slices.Equal(s.Globs, o.Globs) && maps.Equal(s.Variables, o.Variables)
}
