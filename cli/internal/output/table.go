package output

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// widePrefix marks a column that only -o wide shows.
const widePrefix = "+"

// Table is text in columns: plain, or with words of state in colour.
type Table struct {
	// Header has the titles of the columns. A title that begins with "+" is of a column that only a wide table shows.
	Header []string
	Rows   [][]string
	Wide   bool
	Colour bool
	// NoHeaders leaves the titles out.
	NoHeaders bool
	// Least has the minimum widths of the columns, for rows that continue an earlier table; may be nil.
	Least []int
}

// Widths returns the widths of the columns, those that are not shown included.
func (t Table) Widths() []int {
	widths := make([]int, len(t.Header))
	copy(widths, t.Least)
	for i, title := range t.Header {
		if !t.NoHeaders {
			widths[i] = max(widths[i], utf8.RuneCountInString(strings.TrimPrefix(title, widePrefix)))
		}
	}
	for _, row := range t.Rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	return widths
}

// Write prints the table.
func (t Table) Write(w io.Writer) error {
	widths := t.Widths()
	var out strings.Builder
	if !t.NoHeaders {
		titles := make([]string, len(t.Header))
		for i, title := range t.Header {
			titles[i] = strings.TrimPrefix(title, widePrefix)
		}
		out.WriteString(t.line(titles, widths) + "\n")
	}
	for _, row := range t.Rows {
		out.WriteString(t.line(row, widths) + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (t Table) line(row []string, widths []int) string {
	var cells []string
	for i, c := range row {
		if strings.HasPrefix(t.Header[i], widePrefix) && !t.Wide {
			continue
		}
		cells = append(cells, t.paint(c)+strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)))
	}
	return strings.TrimRight(strings.Join(cells, "   "), " ")
}

// colours are the colours of states, by the first word of a cell.
var colours = map[string]int{
	"Synced": 32, "Current": 32, "Connected": 32, "Deleted": 32, "Readable": 32,
	"Pending": 33, "Syncing": 33, "InProgress": 33, "Terminating": 33, "Stale": 33, "was": 33, "Deleting": 33, "Rewound": 33, "OutOfSync": 33, "Held": 33, "Confirmed": 33, "Never": 33,
	"Failed": 31, "NotFound": 31, "Warning": 31, "Unreadable": 31,
}

// paint colours a cell by its first word.
func (t Table) paint(c string) string {
	word, _, _ := strings.Cut(c, " ")
	code, known := colours[word]
	if !t.Colour || !known {
		return c
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", code, c)
}
