package archive

import (
	"fmt"
	"slices"
	"strings"
)

// Order returns tables with parents before their children, otherwise sorted by name, without transient ones.
func Order(tables []Table) ([]Table, error) {
	byName := map[string]Table{}
	for _, t := range tables {
		if !Transient(t.Name) {
			byName[t.Name] = t
		}
	}
	var out []Table
	for len(byName) > 0 {
		var ready []string
		for name, t := range byName {
			waits := slices.ContainsFunc(t.Parents, func(p string) bool {
				_, there := byName[p]
				return there && p != name
			})
			if !waits {
				ready = append(ready, name)
			}
		}
		if len(ready) == 0 {
			return nil, fmt.Errorf("circular references between tables, among %d", len(byName))
		}
		slices.Sort(ready)
		for _, name := range ready {
			out = append(out, byName[name])
			delete(byName, name)
		}
	}
	return out, nil
}

// Match returns how to insert rows of an archived table into a table of a database: order[i] is the index of
// the value for column i of the database. Columns that only one of them has are an error, because then the
// schemas differ.
func Match(archived, table Table) (order []int, err error) {
	position := map[string]int{}
	for i, c := range archived.Columns {
		position[c.Name] = i
	}
	for _, c := range table.Columns {
		i, ok := position[c.Name]
		if !ok {
			return nil, fmt.Errorf("the backup has no column %s.%s", table.Name, c.Name)
		}
		order = append(order, i)
		delete(position, c.Name)
	}
	if len(position) > 0 {
		var names []string
		for name := range position {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("the database has no column %s.%s, but the backup has", table.Name, strings.Join(names, ", "))
	}
	return order, nil
}

// Convert converts a value for a column: not every database has booleans.
func Convert(value any, to Kind) any {
	switch v := value.(type) {
	case bool:
		if to == Int {
			if v {
				return int64(1)
			}
			return int64(0)
		}
	case int64:
		if to == Bool {
			return v != 0
		}
	}
	return value
}
