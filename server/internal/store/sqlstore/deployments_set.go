package sqlstore

import (
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// setsText stores expressions as a list of texts, each a type, a space, and the expression.
func setsText(sets []fleet.HelmSet) string {
	texts := make([]string, len(sets))
	for i, set := range sets {
		texts[i] = string(set.Type) + " " + set.Expression
	}
	return textList(texts)
}

// setsInto scans a value of setsText; an empty list becomes nil.
func setsInto(to *[]fleet.HelmSet) *setScanner { return &setScanner{to} }

type setScanner struct{ dest *[]fleet.HelmSet }

func (s *setScanner) Scan(src any) error {
	var texts []string
	if err := listInto(&texts).Scan(src); err != nil {
		return err
	}
	*s.dest = nil
	for _, text := range texts {
		kind, expression, ok := strings.Cut(text, " ")
		if !ok {
			return fmt.Errorf("scanning a chart value: %q has no type", kind)
		}
		*s.dest = append(*s.dest, fleet.HelmSet{Type: fleet.HelmSetType(kind), Expression: expression})
	}
	return nil
}
