package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/driver"
)

// Now implements [driver.WebhookStore] with the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := only(ctx, s, scan[time.Time], `select clock_timestamp()`)
	if err == nil {
		s.clock.show(now)
	}
	return now, err
}

// Purge implements [driver.WebhookStore]. It also removes the remaining rows of deleted webhooks.
// Events and attempts are hidden as soon as Purge has moved the marks, but use disk space until
// dropParts drops their partition.
func (s *Store) Purge(ctx context.Context, purge driver.Purge) (more bool, err error) {
	ctx, cancel := within(ctx, defaultTimeout)
	defer cancel()
	_, confirmed, err := s.observeClock(ctx)
	if err != nil {
		return false, err
	}
	purge = purge.Doubting(s.clock.ahead(&confirmed))
	since := map[string]time.Time{"payloads": purge.Payloads, "attempts": purge.Attempts, "ids": purge.EventIDs} // by mark
	if err := s.makeParts(ctx, since); err != nil {
		return false, err
	}
	if err := s.moveMarks(ctx, since); err != nil {
		return false, err
	}
	ended, err := s.endExpired(ctx, purge.Limit)
	if err != nil {
		return false, err
	}
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockMark(ctx, tx, "payloads"); err != nil {
			return err
		}
		left := purge.Limit - ended
		for _, step := range []struct {
			sql  string // its last argument is the maximum number of rows to remove
			args []any
		}{
			{purgeRecoveries, []any{utc(purge.Attempts)}},
			{purgeDedupKeys, []any{utc(purge.DedupKeys)}}, {purgeAuditEntries, []any{utc(purge.AuditEntries)}}, {purgeOrphans, nil}, {purgeWebhooks, nil},
		} {
			if left <= 0 {
				break
			}
			done, err := tx.Exec(ctx, s.sql(step.sql), append(step.args, left)...)
			if err != nil {
				return err
			}
			left -= int(done.RowsAffected())
		}
		more = left <= 0
		return nil
	})
	if err != nil {
		return false, err
	}
	return more, s.dropParts(ctx)
}

// moveMarks moves the marks, the lowest event numbers that are not purged, to the times of a purge.
// The marks stay below the numbers of new events and of events in open transactions, even if the
// times are later. They do not move while the event clock is stopped because no part is ready: new
// events then get numbers in the past.
func (s *Store) moveMarks(ctx context.Context, since map[string]time.Time) error {
	var names []string
	var before []int64
	for mark, at := range since {
		names, before = append(names, mark), append(before, numberAfter(at))
	}
	return s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var end, now int64
		if err := s.planned(conn).QueryRow(ctx, s.sql(nextEventNumber), s.clock.latest()).Scan(&end, &now); err != nil || end < now {
			return err
		}
		_, open, err := s.openPublications(ctx, conn)
		if err != nil {
			return err
		}
		if open > 0 { // 0: unknown
			end = min(end, open)
		}
		_, err = conn.Exec(ctx, s.sql(moveMarks), names, before, end)
		return err
	})
}

const (
	// moveMarks locks the rows in a fixed order, to avoid deadlocks.
	moveMarks = `
		update storageapi.marks m set event = least(t.before, $3::bigint)
		from (
			select m.name, t.before from storageapi.marks m join unnest($1::text[], $2::bigint[]) as t (name, before) on t.name = m.name
			where m.event < least(t.before, $3::bigint) order by m.name desc for update of m) t
		where m.name = t.name and m.event < least(t.before, $3::bigint)`

	purgeRecoveries = `
		delete from storageapi.recoveries where no = any(array(
			select no from storageapi.recoveries where done and created_at < $1 order by created_at limit $2))`

	purgeDedupKeys = `
		with old as materialized (
			select account, key, until from storageapi.dedup_keys where until < $1 order by until limit $2
		)
		delete from storageapi.dedup_keys n using old where n.account = any(array[old.account]) and (n.key, n.until) between (old.key, old.until) and (old.key, old.until)`

	// purgeOrphans removes pending deliveries of deleted webhooks.
	purgeOrphans = `
		with old as materialized (
			select q.webhook, q.event from storageapi.past_webhooks p
			cross join lateral (select webhook, event from storageapi.pending where webhook = p.no limit $1) q limit $1
		)
		delete from storageapi.pending p using old where p.webhook = any(array[old.webhook]) and p.event = old.event`

	// purgeWebhooks removes deleted webhooks that have no attempts or pending deliveries left. They
	// must have been deleted more than a day ago: by then, no transaction can still be publishing
	// to them.
	purgeWebhooks = `
		delete from storageapi.past_webhooks where no = any(array(
			select no from storageapi.past_webhooks p where deleted_at < ` + confirmedNow + ` - interval '1 day'
				and (select event from storageapi.attempt_log
					where webhook = p.no and event >= (select event from storageapi.marks where name = 'attempts') order by webhook, event limit 1) is null
				and (select webhook from storageapi.pending where webhook = p.no limit 1) is null
			limit $1))`
)
