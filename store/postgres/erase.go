package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
)

// isErasing reports whether an account is being erased. If the account is locked, the answer holds
// until the transaction ends.
func (s *Store) isErasing(ctx context.Context, db rowQuerier, account string) (is bool, err error) {
	err = db.QueryRow(ctx, s.sql(`select exists (select from storageapi.erasures where account = $1)`), account).Scan(&is)
	return is, err
}

// lockOpen is like lockAccount, for steps that add to the account. It returns auth.ErrErasing if
// the account is being erased.
func (s *Store) lockOpen(ctx context.Context, tx pgx.Tx, account string) error {
	if err := s.lockAccount(ctx, tx, account); err != nil {
		return err
	}
	return s.checkOpen(ctx, tx, account)
}

// checkOpen returns auth.ErrErasing if the account, which must be locked, is being erased.
func (s *Store) checkOpen(ctx context.Context, tx pgx.Tx, account string) error {
	is, err := s.isErasing(ctx, tx, account)
	if err == nil && is {
		err = auth.ErrErasing
	}
	return err
}

// receiptCounts returns pointers to the numbers of a receipt, in the order of the list in the
// column counts of the table erasures.
func receiptCounts(r *store.Receipt) []*int {
	return []*int{&r.Keys, &r.Webhooks, &r.Events, &r.Deliveries, &r.Recoveries, &r.Alerts, &r.DedupKeys, &r.IdempotencyKeys, &r.AuditEntries}
}

var eraseEvents = query("erase_events")

// eraseIDs removes the ids of the account $1 whose events are gone. It selects the same two counts
// as the statement that erase returns.
const eraseIDs = `
	with old as materialized (
		select i.part, i.id from storageapi.partitions p
		cross join lateral (select part, id from storageapi.event_ids where part = p.least and account = $1 limit $2) i
		where p.kind = 'event_ids' limit $2
	), gone as (
		delete from storageapi.event_ids
		where part = any(array(select part from old)) and account = $1 and id = any(array(select id from old)) returning 1
	) select (select count(*) from gone), (select count(*) from old)`

// erase returns the statement that deletes up to $2 of an account's rows from a table. The
// statement deletes by key, because a row's location may change meanwhile. It selects how many rows
// it deleted and how many it found; the second number is larger if other transactions purged some
// of them meanwhile.
func erase(table, key, account string) string {
	return `
		with old as materialized (
			select ` + key + ` as key from storageapi.` + table + ` where ` + account + ` limit $2
		), gone as (
			delete from storageapi.` + table + ` where ` + account + ` and ` + key + ` = any(array(select key from old)) returning 1
		) select (select count(*) from gone), (select count(*) from old)`
}

// EraseAccount implements [store.Eraser]. The first step removes keys, webhooks, alerts and
// recoveries, and notifies other nodes. Later steps remove events, and then the rest.
//
// A transaction that published before the first step may still be open, for example after
// [Store.EnqueueTx]. So more stays true until all of these transactions have ended and a later step
// has found nothing. A step that only waits for these transactions takes a quarter of a second and
// holds no lock meanwhile.
//
// The numbers of the account's webhooks remain stored for a day, without the account and the
// webhooks' ids.
func (s *Store) EraseAccount(ctx context.Context, account string, limit int) (erased store.Receipt, more bool, err error) {
	closing, waits := false, false
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		erased, more, closing, waits = store.Receipt{}, true, false, false
		if err := s.lockAccount(ctx, tx, account); err != nil {
			return err
		}
		var counts []int
		err := tx.QueryRow(ctx, s.sql(`select counts from storageapi.erasures where account = $1`), account).Scan(&counts)
		closing = errors.Is(err, pgx.ErrNoRows)
		switch {
		case closing:
			err = s.closeAccount(ctx, tx, account, &erased)
		case err == nil:
			for i, n := range receiptCounts(&erased) {
				if i < len(counts) {
					*n = counts[i]
				}
			}
			more, waits, err = s.eraseStep(ctx, tx, account, max(limit, 1), &erased)
		}
		if err != nil {
			return err
		}
		if !more {
			return s.openAccount(ctx, tx, account)
		}
		counts = counts[:0]
		for _, n := range receiptCounts(&erased) {
			counts = append(counts, *n)
		}
		_, err = tx.Exec(ctx, s.sql(`insert into storageapi.erasures (account, counts) values ($1, $2)
			on conflict (account) do update set counts = excluded.counts`), account, counts)
		return err
	})
	if closing {
		s.changed(account)
		s.keyChanged(account, "")
	}
	if err != nil {
		return store.Receipt{}, false, err
	}
	if waits {
		_ = wait(ctx, openPause) // the step is done even if ctx has ended
	}
	return erased, more, nil
}

// openPause is how long a step waits for open publications when there is nothing to remove.
const openPause = 250 * time.Millisecond

// closeAccount removes the account's keys, webhooks, alerts and recoveries. Their number is
// limited, so one step is enough.
func (s *Store) closeAccount(ctx context.Context, tx pgx.Tx, account string, erased *store.Receipt) error {
	batch := &pgx.Batch{}
	count := func(n *int, sql string, args ...any) {
		batch.Queue(s.sql(`with gone as (`+sql+` returning 1) select count(*) from gone`), append([]any{account}, args...)...).QueryRow(func(row pgx.Row) error { return row.Scan(n) })
	}
	count(&erased.Keys, `delete from storageapi.keys where account = $1 and next is null returning previous), replaced as (
		delete from storageapi.keys where hash = any(array(select previous from gone where previous is not null)) and next is not null`)
	batch.Queue(s.sql(`delete from storageapi.key_uses where account = $1`), account)
	count(&erased.Webhooks, `delete from storageapi.webhooks where account = $1 returning no), noted as (
		insert into storageapi.changes (kind, shards, webhooks, events)
		select $2::smallint, array_agg($3::smallint), array_agg(no), array_agg(0) from gone having count(*) > 0), past as (
		insert into storageapi.past_webhooks (no, account, id, deleted_at) select no, $1, '', clock_timestamp() from gone`, changeErased, shardOf(account))
	count(&erased.Alerts, `delete from storageapi.alerts where account = $1`)
	count(&erased.Recoveries, `delete from storageapi.recoveries where account = $1`)
	return tx.SendBatch(ctx, batch).Close()
}

// eraseStep removes some of the remaining rows. more is true if rows may be left or may still be
// published. waits is true if the step found no rows and open transactions may still publish some.
func (s *Store) eraseStep(ctx context.Context, tx pgx.Tx, account string, limit int, erased *store.Receipt) (more, waits bool, err error) {
	var ended bool // read before looking for rows
	if err := tx.QueryRow(ctx, s.sql(notePublications), s.sql(`storageapi.event_log`), account).Scan(&ended); err != nil {
		return false, false, err
	}
	if more, err = s.eraseRows(ctx, tx, account, limit, erased); err != nil || more {
		return more, false, err
	}
	return !ended, !ended, nil
}

// eraseRows is like eraseStep, but ignores open publications.
func (s *Store) eraseRows(ctx context.Context, tx pgx.Tx, account string, limit int, erased *store.Receipt) (more bool, err error) {
	var events, deliveries, found int
	if err := tx.QueryRow(ctx, s.sql(eraseEvents), account, limit).Scan(&events, &deliveries, &found); err != nil {
		return false, err
	}
	erased.Events += events
	erased.Deliveries += deliveries
	if found > 0 {
		return true, nil
	}
	for _, rest := range []struct {
		sql   string
		count *int
	}{
		{eraseIDs, new(int)},
		{erase("dedup_keys", "key", `account = $1`), &erased.DedupKeys},
		{erase("requests", "name", `kind = any('{0,1}') and account = $1`), &erased.IdempotencyKeys},
		{erase("audit", "id", `account = $1`), &erased.AuditEntries},
	} {
		var gone, found int
		if err := tx.QueryRow(ctx, s.sql(rest.sql), account, limit).Scan(&gone, &found); err != nil {
			return false, err
		}
		if *rest.count += gone; found == limit {
			return true, nil
		}
	}
	return false, nil
}

// openAccount ends an erasure and removes all traces of the account.
func (s *Store) openAccount(ctx context.Context, tx pgx.Tx, account string) error {
	batch := &pgx.Batch{}
	batch.Queue(s.sql(`update storageapi.past_webhooks set account = '', id = '', deleted_at = clock_timestamp() where account = $1`), account)
	batch.Queue(s.sql(`delete from storageapi.erasures where account = $1`), account)
	batch.Queue(s.sql(`delete from storageapi.accounts where account = $1`), account)
	return tx.SendBatch(ctx, batch).Close()
}
