package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

// bulkRows limits the rows of one message.
const bulkRows = 5000

// Bulk implements [sqlstore.Conn] with one statement for many rows, which are sent as columns.
func (t *tx) Bulk(ctx context.Context, of sqlstore.Scope, b sqlstore.Bulk, rows [][]any, touched func(i int)) error {
	tenant, _ := of.Tenant()
	first := -bulkRows
	for part := range slices.Chunk(rows, bulkRows) {
		first += bulkRows
		args := []any{string(tenant)}
		for i := range part[0] {
			args = append(args, column(part, i))
		}
		err := t.query(ctx, of, b.Many, args, func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				var position int
				if err := rows.Scan(&position); err != nil {
					return err
				}
				touched(first + position - 1)
			}
			return rows.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// column returns the values of one column of all rows. They are texts, or numbers and NULL.
func column(rows [][]any, at int) any {
	if _, text := rows[0][at].(string); text {
		out := make([]string, len(rows))
		for i, row := range rows {
			out[i] = sqlstore.Mend(row[at].(string))
		}
		return out
	}
	out := make([]*int64, len(rows))
	for i, row := range rows {
		if n, ok := row[at].(int64); ok {
			out[i] = &n
		}
	}
	return out
}
