package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// Now implements [webhooks.Store] with the database's clock.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&now)
	})
	return now, err
}

// PurgesConcurrently implements [webhooks.ConcurrentPurger].
func (s *Store) PurgesConcurrently() {}

// Purge implements [webhooks.Store]. Calls are serialized. It also removes what deleted
// webhooks have left behind.
func (s *Store) Purge(ctx context.Context, purge webhooks.Purge) (more bool, err error) {
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockMark(ctx, tx, "payloads"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, indexed); err != nil {
			return err
		}
		p := purger{Store: s, tx: tx, left: purge.Limit}
		payloads, attempts, ids := numberAfter(purge.Payloads), numberAfter(purge.Attempts), numberAfter(purge.EventIDs)
		for _, step := range []func(context.Context) error{
			func(ctx context.Context) error { return p.payloads(ctx, payloads) },
			func(ctx context.Context) error { return p.attempts(ctx, attempts) },
			func(ctx context.Context) error { return p.remove(ctx, purgeIDs, ids, p.left) },
			func(ctx context.Context) error { return p.remove(ctx, purgeEvents, min(attempts, ids), p.left) },
			func(ctx context.Context) error { return p.remove(ctx, purgeRecoveries, utc(purge.Attempts), p.left) },
			func(ctx context.Context) error { return p.remove(ctx, purgeDedupKeys, utc(purge.DedupKeys), p.left) },
			func(ctx context.Context) error { return p.remove(ctx, purgeNotices, utc(purge.Notices), p.left) },
			func(ctx context.Context) error { return p.remove(ctx, purgeOrphans, p.left) },
			func(ctx context.Context) error { return p.remove(ctx, purgeWebhooks, p.left) },
		} {
			if p.left <= 0 {
				break
			}
			if err := step(ctx); err != nil {
				return err
			}
		}
		more = p.left <= 0
		return nil
	})
	if err != nil {
		return false, err
	}
	return more, nil
}

// A purger removes at most left more records.
type purger struct {
	*Store
	tx   pgx.Tx
	left int
}

const (
	// attemptsOf finds the attempts of events.
	attemptsOf = `
		select a.at from old
		cross join lateral (
			select no from storageapi.webhooks where account = old.account union all select no from storageapi.past_webhooks where account = old.account) w
		cross join lateral (select ctid as at from storageapi.attempts where webhook = w.no and event = old.event) a`

	// The attempts of an event are removed together once its body is removed: then there
	// are no further attempts, except of expiring events.
	purgeAttempts = `
		with next as materialized (
			select event, account, sum(matched + 1) over (order by event) - matched as before from storageapi.events
			where event >= (select event from storageapi.marks where name = 'attempts')
				and event < least($1, (select event from storageapi.marks where name = 'payloads'))
			order by event limit $2
		), passed as materialized (
			select event, account from next where before <= $2
		), marked as (
			update storageapi.marks set event = greatest(event, (select max(event) from passed) + 1) where name = 'attempts' and exists (select from passed)
		), old as (
			select event, account from passed where not exists (select from storageapi.expiring where event = passed.event)
		), gone as (
			delete from storageapi.attempts where ctid = any(array(` + attemptsOf + `)) returning 1
		)
		select (select count(*) from passed) + (select count(*) from gone)`

	// Attempts of events that expired after the other attempts were removed.
	purgeExpired = `
		with old as (
			select event, account from storageapi.events where event = any($1::bigint[])
				and event < (select event from storageapi.marks where name = 'attempts')
				and not exists (select from storageapi.expiring where event = events.event)
		)
		delete from storageapi.attempts where ctid = any(array(` + attemptsOf + `))`

	// The ids of all events before the mark are no longer known.
	purgeIDs = `
		with old as materialized (
			select event from storageapi.events
			where known and event < $1 and event >= (select event from storageapi.marks where name = 'ids')
			order by event limit $2
		), marked as (
			update storageapi.marks set event = greatest(event, (select max(event) from old) + 1) where name = 'ids' and exists (select from old)
		)
		update storageapi.events set known = false where event = any(array(select event from old))`

	purgeEvents = `
		delete from storageapi.events where event = any(array(
			select event from storageapi.events
			where not known and event < least($1, (select event from storageapi.marks where name = 'attempts'))
				and not exists (select from storageapi.expiring where event = events.event)
			order by event limit $2))`

	purgeRecoveries = `
		delete from storageapi.recoveries where no = any(array(
			select no from storageapi.recoveries where done and created_at < $1 order by no limit $2))`

	purgeDedupKeys = `
		delete from storageapi.notices where (account, key, until) in (
			select account, key, until from storageapi.notices where until < $1 order by until limit $2)`

	// Pending deliveries of deleted webhooks.
	purgeOrphans = `
		delete from storageapi.queue where ctid = any(array(
			select q.at from storageapi.past_webhooks p
			cross join lateral (select ctid as at from storageapi.queue where webhook = p.no limit $1) q limit $1))`

	// No transaction can still publish to webhooks that were deleted a day ago.
	purgeWebhooks = `
		delete from storageapi.past_webhooks where no = any(array(
			select no from storageapi.past_webhooks p where deleted_at < clock_timestamp() - interval '1 day'
				and not exists (select from storageapi.attempts where webhook = p.no)
				and not exists (select from storageapi.queue where webhook = p.no)
			limit $1))`
)

func (p *purger) remove(ctx context.Context, sql string, args ...any) error {
	done, err := p.tx.Exec(ctx, p.sql(sql), args...)
	p.left -= int(done.RowsAffected())
	return err
}

// attempts removes the attempts of events before that number. It counts the events, too.
func (p *purger) attempts(ctx context.Context, before int64) error {
	var done int
	err := p.tx.QueryRow(ctx, p.sql(purgeAttempts), before, p.left).Scan(&done)
	p.left -= done
	return err
}

const (
	// pendingOf selects the pending deliveries of the events $1.
	pendingOf = `
		select e.account, q.webhook, q.event from unnest($1::bigint[]) as i (event)
		cross join lateral (select account from storageapi.events where event = i.event limit 1) e
		cross join lateral (select no from storageapi.webhooks where account = e.account) w
		cross join lateral (select webhook, event from storageapi.queue where webhook = w.no and event = i.event limit 1) q`

	// endPending settles the pending deliveries of the events $1 as dead, unless they are leased.
	endPending = `
		with owed as (` + pendingOf + `), gone as (
			delete from storageapi.queue q using owed o where q.webhook = o.webhook and q.event = o.event and not exists (
				select from storageapi.leases l where l.account = o.account and l.webhook = q.webhook and l.event = q.event)
			returning q.webhook, q.event)
		insert into storageapi.attempts (event, webhook, number, state, started_at, took, status, class, error, response)
		select event, webhook, 1 + coalesce((select max(number) from storageapi.attempts a where a.event = gone.event and a.webhook = gone.webhook), 0),
			2, $2, 0, 0, $3, $4, '' from gone`
)

// payloads removes the bodies of events before that number and ends their pending
// deliveries. Leased deliveries may finish: their event is expiring until then.
func (p *purger) payloads(ctx context.Context, before int64) error {
	expiring, err := p.events(ctx, `select event from storageapi.expiring where event < $1 order by event limit $2`, before)
	if err != nil {
		return err
	}
	old, err := p.events(ctx, `
		select event from storageapi.events where event < $1 and event >= (select event from storageapi.marks where name = 'payloads')
		order by event limit $2`, before)
	if err != nil || len(old)+len(expiring) == 0 {
		return err
	}
	p.left -= len(old)
	events := append(expiring, old...)
	var owed bool
	if err := p.tx.QueryRow(ctx, p.sql(`select exists (`+pendingOf+`)`), events).Scan(&owed); err != nil {
		return err
	}
	if owed {
		all := make([]int16, shards)
		for i := range all {
			all[i] = int16(i)
		}
		if err := p.lockShards(ctx, p.tx, all...); err != nil {
			return err
		}
		expired := webhooks.ExpiredAttempt(0, time.Now())
		if err := p.remove(ctx, endPending, events, expired.StartedAt, string(expired.Class), expired.Error); err != nil {
			return err
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(p.sql(`update storageapi.events set body = null where event = any($1::bigint[]) and body is not null`), old)
	batch.Queue(p.sql(`update storageapi.marks set event = greatest(event, $1) where name = 'payloads'`), events[len(events)-1]+1)
	batch.Queue(p.sql(`delete from storageapi.expiring where event = any($1::bigint[])`), expiring)
	batch.Queue(p.sql(`insert into storageapi.expiring select distinct event from (`+pendingOf+`) owed`), events)
	batch.Queue(p.sql(purgeExpired), expiring)
	return p.tx.SendBatch(ctx, batch).Close()
}

// events returns up to left numbers of events before that number.
func (p *purger) events(ctx context.Context, sql string, before int64) ([]int64, error) {
	rows, err := p.tx.Query(ctx, p.sql(sql), before, p.left)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
