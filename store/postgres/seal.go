package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/signing"
)

// resealStep is how many webhooks one transaction seals again.
const resealStep = 500

// sealMark is the name under which the mark is sealed. The mark is a secret that shows which keys
// are in use.
const sealMark = "seal"

// reseal seals all secrets under the first key, or unseals them all if there are no keys.
func (s *Store) reseal(ctx context.Context) error {
	for from, done := int64(0), false; !done; {
		ctx, cancel := within(ctx, patience)
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

// resealFrom seals again the secrets of some webhooks with numbers above from. It returns the
// number to continue from, or marks all as sealed and returns done.
func (s *Store) resealFrom(ctx context.Context, tx pgx.Tx, from int64) (next int64, done bool, err error) {
	keys := s.options.keys
	var mark []byte
	if err := tx.QueryRow(ctx, s.sql(`select seal from storageapi.marks where name = 'seal' for update`)).Scan(&mark); err != nil {
		return 0, false, err
	}
	if _, err := keys.Open(mark, sealMark); err != nil {
		return 0, false, err
	}
	if keys.Current(mark) && (keys == nil || len(mark) > 0) {
		return 0, true, nil
	}
	batch := &pgx.Batch{}
	seen, err := rowsOf(ctx, tx, func(row pgx.CollectableRow) (no int64, err error) {
		var id string
		var secret, previous []byte
		if err := row.Scan(&no, &id, &secret, &previous); err != nil {
			return 0, err
		}
		now, err := keys.Open(secret, id)
		before, err2 := keys.Open(previous, id)
		if err == nil && err2 == nil { // otherwise these keys cannot open it
			batch.Queue(s.sql(`update storageapi.webhooks set secret = $2, previous_secret = $3, version = version + 1 where no = $1`),
				no, keys.Seal(now, id), keys.Seal(before, id))
		}
		return no, nil
	}, s.sql(`select no, id, secret, previous_secret from storageapi.webhooks where no > $1 order by no limit $2 for no key update`), from, resealStep)
	if err == nil {
		err = tx.SendBatch(ctx, batch).Close()
	}
	if err != nil {
		return 0, false, err
	}
	if len(seen) == resealStep {
		return seen[resealStep-1], false, nil
	}
	_, err = tx.Exec(ctx, s.sql(`update storageapi.marks set seal = $1 where name = 'seal'`), keys.Seal(signing.NewSecret(), sealMark))
	return 0, true, err
}
