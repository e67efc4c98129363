package manifest

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Maximum lengths of the parts of an identity. Kubernetes allows no more, so longer names could not be applied.
const (
	maxName  = 253 // name, namespace, group
	maxLabel = 63  // kind, version
)

// checkType checks the parts of apiVersion and kind.
func checkType(ref fleet.ObjectRef) error {
	if err := checkSegment("kind", ref.Kind, maxLabel); err != nil {
		return err
	}
	if err := checkSegment("the group of apiVersion", ref.Group, maxName); err != nil {
		return err
	}
	return checkSegment("the version of apiVersion", ref.Version, maxLabel)
}

// checkSegment refuses text that cannot be one segment of a path of the API server: "/" and "%", "." and "..",
// and characters that cannot be displayed.
func checkSegment(what, word string, limit int) error {
	switch {
	case len(word) > limit:
		return fmt.Errorf("%s %s has %d bytes, more than the %d that Kubernetes allows", what, quoteShort(word), len(word), limit)
	case word == "." || word == "..":
		return fmt.Errorf("%s may not be %q", what, word)
	case strings.ContainsAny(word, "/%"):
		return fmt.Errorf("%s %s may contain neither %q nor %q", what, quoteShort(word), "/", "%")
	case !utf8.ValidString(word) || strings.ContainsFunc(word, isUnreadable):
		return fmt.Errorf("%s %s contains a space or a character that cannot be printed", what, quoteShort(word))
	}
	return nil
}

func isUnreadable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

// quoteShort quotes the start of a text: enough to find it.
func quoteShort(word string) string {
	const limit = 64
	if utf8.RuneCountInString(word) <= limit {
		return fmt.Sprintf("%q", word)
	}
	return fmt.Sprintf("%q…", string([]rune(word)[:limit]))
}
