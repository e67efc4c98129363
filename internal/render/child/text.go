package child

import (
	"fmt"

	"github.com/kedge-dev/kedge/internal/plaintext"
)

// clean makes text of a child safe to display: valid UTF-8, without control characters except line ends, and at
// most most bytes.
func clean(text string, most int) string { return plaintext.Text(text, most) }

// Limits of the texts that are accepted from a child.
const (
	maxProblem = 8 << 10
	maxNotes   = 50
	maxNote    = 500
)

// cleanNotes makes notes safe to display, and limits their number.
func cleanNotes(notes []string) []string {
	var out []string
	for _, note := range notes[:min(len(notes), maxNotes)] {
		out = append(out, clean(note, maxNote))
	}
	if more := len(notes) - maxNotes; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// bytesText formats a size for people.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
