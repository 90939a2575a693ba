package postgres

import (
	"context"
	"slices"
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
	if err := s.lookNow(ctx); err != nil { // so that what it ends is in memory
		return false, err
	}
	x := s.newExpirer()
	var others []string // the accounts of what other nodes are to end
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockMark(ctx, tx, "payloads"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, indexed); err != nil {
			return err
		}
		p := purger{expirer: x, tx: tx, left: purge.Limit}
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
		more, others = p.left <= 0, p.others
		return nil
	})
	x.close(err == nil)
	if err != nil {
		return false, err
	}
	if len(others) > 0 {
		s.changed(others...)
	}
	return more, nil
}

// A purger removes at most left more records.
type purger struct {
	*expirer
	tx     pgx.Tx
	left   int
	others []string // accounts with deliveries that other nodes are to end
}

const (
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
		with old as materialized (
			select account, key, until from storageapi.notices where until < $1 order by until limit $2
		)
		delete from storageapi.notices n using old where n.account = any(array[old.account]) and (n.key, n.until) between (old.key, old.until) and (old.key, old.until)`

	// Pending deliveries of deleted webhooks.
	purgeOrphans = `
		with old as materialized (
			select q.webhook, q.event from storageapi.past_webhooks p
			cross join lateral (select webhook, event from storageapi.pending where webhook = p.no limit $1) q limit $1
		)
		delete from storageapi.pending p using old where p.webhook = any(array[old.webhook]) and p.event = old.event`

	// No transaction can still publish to webhooks that were deleted a day ago.
	purgeWebhooks = `
		delete from storageapi.past_webhooks where no = any(array(
			select no from storageapi.past_webhooks p where deleted_at < clock_timestamp() - interval '1 day'
				and (select webhook from storageapi.attempts where webhook = p.no limit 1) is null
				and (select webhook from storageapi.pending where webhook = p.no limit 1) is null
			limit $1))`
)

var (
	purgeAttempts = query("purge_attempts")
	purgeExpired  = query("purge_expired_attempts")
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

// payloads removes the bodies of events before that number and ends their pending
// deliveries, or tells the nodes that own them. Deliveries under way may finish: their event
// is expiring until then.
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
	rows, err := p.tx.Query(ctx, p.sql(pendingOf), events)
	if err != nil {
		return err
	}
	pending, err := pgx.CollectRows(rows, scanExpired)
	if err != nil {
		return err
	}
	others, err := p.end(ctx, p.tx, pending)
	if err != nil {
		return err
	}
	p.left -= len(p.ended)
	batch := &pgx.Batch{}
	batch.Queue(p.sql(`update storageapi.events set body = null where event = any($1::bigint[]) and body is not null`), old)
	batch.Queue(p.sql(`update storageapi.marks set event = greatest(event, $1) where name = 'payloads'`), events[len(events)-1]+1)
	batch.Queue(p.sql(`delete from storageapi.expiring where event = any($1::bigint[])`), expiring)
	batch.Queue(p.sql(`insert into storageapi.expiring select distinct event from (`+pendingOf+`) owed`), events)
	batch.Queue(p.sql(purgeExpired), expiring)
	if len(others) > 0 {
		p.noteExpired(batch, others)
	}
	return p.tx.SendBatch(ctx, batch).Close()
}

// noteExpired has the owners of deliveries end them.
func (p *purger) noteExpired(batch *pgx.Batch, list []expiredDelivery) {
	var shards []int16
	var hooks, events []int64
	for _, d := range list {
		shards, hooks, events = append(shards, d.shard), append(hooks, d.pair.webhook), append(events, d.pair.event)
		if !slices.Contains(p.others, d.account) {
			p.others = append(p.others, d.account)
		}
	}
	batch.Queue(p.sql(noteChange), changeExpired, shards, hooks, events)
}

// events returns up to left numbers of events before that number.
func (p *purger) events(ctx context.Context, sql string, before int64) ([]int64, error) {
	rows, err := p.tx.Query(ctx, p.sql(sql), before, p.left)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
