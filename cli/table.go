package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table is text in columns: plain, or with words of state in colour.
type table struct {
	header []string
	rows   [][]string
	colour bool
	least  []int // widths of the columns, where earlier rows of the same table were wider; may be nil
}

// widths are of the widest cells.
func (t table) widths() []int {
	widths := make([]int, len(t.header))
	copy(widths, t.least)
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	return widths
}

func (t table) write(w io.Writer) error {
	widths := t.widths()
	var out strings.Builder
	for i, row := range append([][]string{t.header}, t.rows...) {
		if i > 0 || len(t.header) > 0 && t.header[0] != "" {
			out.WriteString(t.line(row, widths) + "\n")
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (t table) line(row []string, widths []int) string {
	cells := make([]string, len(row))
	for i, c := range row {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
		if i == len(row)-1 {
			pad = ""
		}
		cells[i] = t.paint(c) + pad
	}
	return strings.TrimRight(strings.Join(cells, "   "), " ")
}

// paint colours the first word of a cell by what it says about state.
func (t table) paint(c string) string {
	word, _, _ := strings.Cut(c, " ")
	code, known := map[string]int{
		"Synced": 32, "Current": 32, "Connected": 32, "Deleted": 32, "Readable": 32,
		"Pending": 33, "Syncing": 33, "InProgress": 33, "Terminating": 33, "Stale": 33, "was": 33, "Deleting": 33, "Rewound": 33, "OutOfSync": 33, "Held": 33, "Confirmed": 33,
		"Failed": 31, "NotFound": 31, "Warning": 31, "Unreadable": 31, "Never": 33,
	}[word]
	if !t.colour || !known {
		return c
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", code, c)
}
