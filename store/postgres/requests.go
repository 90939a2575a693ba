package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// Kinds of requests with idempotency keys.
const (
	keyRequests     = 0
	webhookRequests = 1
)

// forgetStep is the maximum number of old requests that are removed when a new request is recorded.
const forgetStep = 8

// create creates a key or a webhook of an account with options.
func (s *Store) create(ctx context.Context, kind int, account, id string, options *driver.CreateOptions, insert func(context.Context, pgx.Tx) error) error {
	if options.IdempotencyKey != "" {
		if err := s.keepObserving(ctx); err != nil {
			return err
		}
	}
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockAccount(ctx, tx, account); err != nil {
			return err
		}
		if err := s.checkCredential(ctx, tx, account, options.By); err != nil {
			return err
		}
		if err := s.checkOpen(ctx, tx, account); err != nil {
			return err
		}
		if err := s.repeated(ctx, tx, kind, account, options); err != nil {
			return err
		}
		if err := insert(ctx, tx); err != nil {
			return err
		}
		return s.note(ctx, tx, kind, account, id, options)
	})
}

// lockAccount locks an account until the transaction ends. It serializes the account's creations,
// webhook changes and alert steps.
func (s *Store) lockAccount(ctx context.Context, tx pgx.Tx, account string) error {
	_, err := tx.Exec(ctx, s.sql(`insert into storageapi.accounts as a (account) values ($1)
		on conflict (account) do update set account = a.account`), account)
	return err
}

// checkLimit returns the error exceeded if the statement count, which counts the new row too,
// selects more than limit. A limit of 0 means no limit.
func (s *Store) checkLimit(ctx context.Context, tx pgx.Tx, count, account string, limit int, exceeded error) error {
	if limit == 0 {
		return nil
	}
	var n int
	err := tx.QueryRow(ctx, s.sql(count), account).Scan(&n)
	if err == nil && n > limit {
		err = exceeded
	}
	return err
}

// repeated returns a DuplicateRequestError if the account has used the idempotency key within
// IdempotencyTTL.
func (s *Store) repeated(ctx context.Context, tx pgx.Tx, kind int, account string, options *driver.CreateOptions) error {
	if options.IdempotencyKey == "" {
		return nil
	}
	var before driver.DuplicateRequestError
	var sum []byte
	err := tx.QueryRow(ctx, s.sql(`select id, sum from storageapi.requests where kind = $1 and account = $2 and name = $3
		and at >= `+confirmedNow+` - $4 * interval '1 microsecond'`),
		kind, account, options.IdempotencyKey, options.IdempotencyTTL.Microseconds()).Scan(&before.ID, &sum)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	copy(before.Fingerprint[:], sum)
	return &before
}

const (
	// forgetRequests locks its rows in a fixed order, before the transaction locks its own request.
	// So concurrent creations wait for each other and do not deadlock.
	forgetRequests = `
		with old as materialized (
			select kind, account, name from storageapi.requests where at < ` + confirmedNow + ` - $1 * interval '1 microsecond'
			order by at, kind, account, name limit $2 for update
		)
		delete from storageapi.requests r using old
		where r.kind = any(array[old.kind]) and r.account = old.account and r.name = old.name`

	noteRequest = `
		insert into storageapi.requests (kind, account, name, id, sum, at, key_id) values ($1, $2, $3, $4, $5, least(clock_timestamp(), $6::timestamptz), $7)
		on conflict (kind, account, name) do update set id = excluded.id, sum = excluded.sum, at = excluded.at, key_id = excluded.key_id`
)

// note records the idempotency key of a creation, if options has one, and removes up to forgetStep
// expired keys. It returns ErrIdempotencyKeys if the account has reached its limit of keys.
func (s *Store) note(ctx context.Context, tx pgx.Tx, kind int, account, id string, options *driver.CreateOptions) error {
	if options.IdempotencyKey == "" {
		return nil
	}
	if options.MaxIdempotencyKeys > 0 {
		var known int
		err := tx.QueryRow(ctx, s.sql(`select count(*) from (
			select from storageapi.requests where kind = $1 and account = $2
				and at >= (select storageapi.confirmed_clock() - $3 * interval '1 microsecond') limit $4) known`),
			kind, account, options.IdempotencyTTL.Microseconds(), options.MaxIdempotencyKeys).Scan(&known)
		if err == nil && known >= options.MaxIdempotencyKeys {
			err = apierr.ErrIdempotencyKeys
		}
		if err != nil {
			return err
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(s.sql(forgetRequests), options.IdempotencyTTL.Microseconds(), forgetStep)
	batch.Queue(s.sql(noteRequest), kind, account, options.IdempotencyKey, id, options.Fingerprint[:], s.clock.latest(), options.By.KeyID)
	return tx.SendBatch(ctx, batch).Close()
}
