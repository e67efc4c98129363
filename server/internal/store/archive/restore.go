package archive

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNotEmpty says that there is something in the database that a backup was to be restored into.
var ErrNotEmpty = errors.New("the database is not empty: restore into a new one")

// Insert puts rows into a table. next returns false at the end of the rows.
type Insert func(t Table, next func() ([]any, bool, error)) error

// Restore hands every table of an archive to insert, parents first, with rows as the database has them. It
// fails, and what was done has to be undone, unless all of the archive was whole and every table of
// the database was in it.
func Restore(r *Reader, schema int64, tables []Table, insert Insert) error {
	if r.Manifest.Schema != schema {
		return fmt.Errorf("the backup is of schema version %d, and the database of %d: restore it with the kedge-server that wrote it (%s), then upgrade",
			r.Manifest.Schema, schema, r.Manifest.Kedge)
	}
	missing := map[string]Table{}
	for _, t := range tables {
		missing[t.Name] = t
	}
	for {
		archived, ok, err := r.NextTable()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		t, known := missing[archived.Name]
		if !known {
			return fmt.Errorf("the backup has a table %q, which the database has not, or it has it twice", archived.Name)
		}
		delete(missing, archived.Name)
		if err := restoreTable(r, archived, t, insert); err != nil {
			return fmt.Errorf("restoring table %s: %w", archived.Name, err)
		}
	}
	if len(missing) > 0 {
		var names []string
		for name := range missing {
			names = append(names, name)
		}
		return fmt.Errorf("the backup lacks table %s", slices.Min(names))
	}
	return nil
}

func restoreTable(r *Reader, archived, t Table, insert Insert) error {
	order, err := Match(archived, t)
	if err != nil {
		return err
	}
	return insert(t, func() ([]any, bool, error) {
		values, ok, err := r.NextRow()
		if err != nil || !ok {
			return nil, false, err
		}
		out := make([]any, len(order))
		for i, from := range order {
			out[i] = Convert(values[from], t.Columns[i].Kind)
		}
		return out, true, nil
	})
}
