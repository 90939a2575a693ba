package postgres

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5"
)

// UpdateFileScan implements [webhooks.Store]. The state is stored in a mark, which the step
// locks.
func (s *Store) UpdateFileScan(ctx context.Context, change func([]byte) ([]byte, error)) error {
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var before []byte
		if err := tx.QueryRow(ctx, s.sql(`insert into storageapi.marks as m (name, seal) values ('file_scan', '')
			on conflict (name) do update set seal = m.seal returning seal`)).Scan(&before); err != nil {
			return err
		}
		state, err := change(bytes.Clone(before))
		if err != nil || bytes.Equal(state, before) {
			return err
		}
		_, err = tx.Exec(ctx, s.sql(`update storageapi.marks set seal = $1 where name = 'file_scan'`), state)
		return err
	})
}
