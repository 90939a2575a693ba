package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/signing"
)

// resealStep is how many webhooks one transaction seals.
const resealStep = 500

// sealMark is the name under which the mark is sealed. The mark is a random secret, encrypted with
// the data key. If it exists, all secrets are sealed with the data key that opens the mark.
const sealMark = "seal"

// openDataKey opens the schema's data key, or adds one if the schema has none and there is a
// Sealer. It calls the Sealer outside transactions. Other nodes may do the same: each write is a
// compare-and-swap, and a node that loses starts again with the other node's row.
func (s *Store) openDataKey(ctx context.Context) error {
	for {
		sealed, mark, err := s.storedDataKey(ctx)
		switch {
		case err != nil:
			return err
		case sealed == nil && mark != nil:
			return fmt.Errorf("no data key: %w", signing.ErrDamaged)
		case sealed == nil && s.options.sealer == nil:
			return nil
		}
		stale := sealed == nil
		if stale {
			s.dataKey = signing.NewDataKey()
		} else if s.dataKey, stale, err = signing.OpenDataKey(ctx, s.options.sealer, sealed); err != nil {
			return err
		}
		if !stale {
			return nil
		}
		renewed, err := s.dataKey.SealedBy(ctx, s.options.sealer)
		if err != nil {
			return err
		}
		if swapped, err := s.swapDataKey(ctx, sealed, renewed); err != nil || swapped {
			return err
		}
	}
}

// storedDataKey returns the sealed data key and the mark; each is nil if it does not exist.
func (s *Store) storedDataKey(ctx context.Context) (sealed, mark []byte, err error) {
	ctx, cancel := within(ctx, defaultTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, s.sql(`select (select seal from storageapi.marks where name = 'data_key'),
		(select seal from storageapi.marks where name = 'seal')`)).Scan(&sealed, &mark)
	return sealed, mark, failure(ctx, err)
}

// swapDataKey replaces the sealed data key if it still equals old. A nil old means that there is
// none yet.
func (s *Store) swapDataKey(ctx context.Context, old, renewed []byte) (swapped bool, err error) {
	ctx, cancel := within(ctx, defaultTimeout)
	defer cancel()
	tag, err := s.pool.Exec(ctx, s.sql(`insert into storageapi.marks as m (name, seal) values ('data_key', $2)
		on conflict (name) do update set seal = excluded.seal where m.seal = $1`), old, renewed)
	return tag.RowsAffected() > 0, failure(ctx, err)
}

// reseal seals all secrets that are in plain text, if there is a data key.
func (s *Store) reseal(ctx context.Context) error {
	if s.dataKey == nil {
		return nil
	}
	for from, done := int64(0), false; !done; {
		ctx, cancel := within(ctx, defaultTimeout)
		err := pgx.BeginTxFunc(ctx, s.pool, s.transaction(), func(tx pgx.Tx) (err error) {
			from, done, err = s.resealFrom(ctx, tx, from)
			return err
		})
		err = failure(ctx, err)
		cancel()
		if err != nil {
			return fmt.Errorf("signing secrets: %w", err)
		}
	}
	return nil
}

// resealFrom seals the secrets of some webhooks with numbers above from. It returns the number to
// continue from. If no webhooks are left, it stores the mark and returns done.
func (s *Store) resealFrom(ctx context.Context, tx pgx.Tx, from int64) (next int64, done bool, err error) {
	key := s.dataKey
	var mark []byte
	if err := tx.QueryRow(ctx, s.sql(`select seal from storageapi.marks where name = 'seal' for update`)).Scan(&mark); err != nil {
		return 0, false, err
	}
	if len(mark) > 0 {
		_, err := key.Open(mark, sealMark)
		return 0, err == nil, err
	}
	batch := &pgx.Batch{}
	seen, err := rowsOf(ctx, tx, func(row pgx.Row) (no int64, err error) {
		var id string
		var secret, previous, headers []byte
		if err := row.Scan(&no, &id, &secret, &previous, &headers); err != nil {
			return 0, err
		}
		now, err := key.Open(secret, id)
		before, err2 := key.Open(previous, id)
		text, err3 := key.OpenText(headers, id)
		if err == nil && err2 == nil && err3 == nil { // an unreadable secret stays unreadable
			batch.Queue(s.sql(`update storageapi.webhooks set secret = $2, previous_secret = $3, header_secrets = $4, version = version + 1 where no = $1`),
				no, key.Seal(now, id), key.Seal(before, id), key.SealText(text, id))
		}
		return no, nil
	}, s.sql(`select no, id, secret, previous_secret, header_secrets from storageapi.webhooks where no > $1 order by no limit $2 for no key update`), from, resealStep)
	if err == nil {
		err = tx.SendBatch(ctx, batch).Close()
	}
	if err != nil {
		return 0, false, err
	}
	if len(seen) == resealStep {
		return seen[resealStep-1], false, nil
	}
	_, err = tx.Exec(ctx, s.sql(`update storageapi.marks set seal = $1 where name = 'seal'`), key.Seal(signing.NewSecret(), sealMark))
	return 0, true, err
}
