package archive

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNotEmpty means that the target database of a restore contains data.
var ErrNotEmpty = errors.New("the database is not empty: restore into a new database")

// Insert inserts rows into a table. next returns false at the end of the rows.
type Insert func(t Table, next func() ([]any, bool, error)) error

// Restore passes every table of an archive to insert, parents first, with the values for the database. It
// fails, and the caller must roll back, unless the archive is complete and contains every table of the
// database.
func Restore(r *Reader, schema int64, tables []Table, insert Insert) error {
	if r.Manifest.Schema != schema {
		return fmt.Errorf("the backup has schema version %d, but the database has %d: restore it with the kedge-server that wrote it (%s), then upgrade",
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
			return fmt.Errorf("the backup has a table %q that the database does not have, or has it twice", archived.Name)
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
		return fmt.Errorf("the backup has no table %s", slices.Min(names))
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
