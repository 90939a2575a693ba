package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/signing"
)

// resealStep is how many webhooks are sealed again in one transaction.
const resealStep = 500

// sealMark is the name under which the mark is sealed: a secret that shows which keys are
// in use.
const sealMark = "seal"

// reseal seals all secrets under the first key, or unseals them all if there are no keys.
func (s *Store) reseal(ctx context.Context) error {
	for from, done := int64(0), false; !done; {
		ctx, cancel := within(ctx, patience)
		err := pgx.BeginTxFunc(ctx, s.pool, transaction, func(tx pgx.Tx) (err error) {
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

// resealFrom seals the secrets of some webhooks after the number from again. It returns the
// number to continue from, or marks all as sealed and reports that it is done.
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
	rows, err := tx.Query(ctx, s.sql(`
		select no, id, secret, previous_secret from storageapi.webhooks where no > $1 order by no limit $2 for no key update`), from, resealStep)
	if err != nil {
		return 0, false, err
	}
	batch := &pgx.Batch{}
	seen := 0
	for ; rows.Next(); seen++ {
		var id string
		var secret, previous []byte
		if err := rows.Scan(&next, &id, &secret, &previous); err != nil {
			rows.Close()
			return 0, false, err
		}
		now, err := keys.Open(secret, id)
		before, err2 := keys.Open(previous, id)
		if errors.Join(err, err2) != nil {
			continue // these keys cannot open it
		}
		batch.Queue(s.sql(`update storageapi.webhooks set secret = $2, previous_secret = $3, version = version + 1 where no = $1`),
			next, keys.Seal(now, id), keys.Seal(before, id))
	}
	if rows.Err() != nil {
		return 0, false, rows.Err()
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return 0, false, err
	}
	if seen == resealStep {
		return next, false, nil
	}
	_, err = tx.Exec(ctx, s.sql(`update storageapi.marks set seal = $1 where name = 'seal'`), keys.Seal(signing.NewSecret(), sealMark))
	return 0, true, err
}
