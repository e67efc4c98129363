package archive

import (
	"fmt"
	"slices"
	"strings"
)

// Order returns tables with parents before their children, and otherwise by name, without those that
// are transient.
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
			return nil, fmt.Errorf("tables refer to each other in a circle, among %d", len(byName))
		}
		slices.Sort(ready)
		for _, name := range ready {
			out = append(out, byName[name])
			delete(byName, name)
		}
	}
	return out, nil
}

// Match says how to put rows of an archived table into one of a database: order[i] is where the value of
// the database's column i is. Columns that only one of them has are an error: then they are of
// different schemas.
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
		return nil, fmt.Errorf("table %s has no column %s, which the backup has", table.Name, strings.Join(names, ", "))
	}
	return order, nil
}

// Convert makes a value one of a column: databases differ in whether they know booleans.
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
