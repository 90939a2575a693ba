package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// pendingElsewhere counts what is pending, and tells since when the first that is due waits, in the
// shards but $1; pendingOfWebhook, of the webhook $2.
const (
	pendingElsewhere = elsewhere + `join storageapi.pending p on p.webhook = w.no`
	pendingOfWebhook = elsewhere + `cross join lateral (select due, shard, attempts, before from storageapi.pending where webhook = w.no offset 0) p where w.id = $2`

	elsewhere = `
		select count(*), min(least(p.due, ` + confirmedNow + `)) filter (where w.active and not w.held and (p.attempts = p.before or p.due <= ` + confirmedNow + `) and p.shard <> all($1::smallint[]))
		from storageapi.webhooks w `
)

// Backlog implements [webhooks.Store]. It counts the pending deliveries: 0.1 s for a million.
// OldestDue counts what is being attempted on other nodes as waiting.
func (s *Store) Backlog(ctx context.Context, webhookID string) (backlog webhooks.Backlog, err error) {
	if _, err := s.lookIfDue(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	own := s.owned.queue.Backlog(time.Now(), webhookID)
	shards := s.owned.loaded()
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var oldest *time.Time
		sql, args := pendingElsewhere, []any{append([]int16{}, shards...)}
		if webhookID != "" {
			sql, args = pendingOfWebhook, append(args, webhookID)
		}
		err := s.planned(conn).QueryRow(ctx, s.sql(sql), args...).Scan(&backlog.Pending, &oldest)
		if backlog.OldestDue = loaded(oldest); backlog.OldestDue.IsZero() || !own.OldestDue.IsZero() && own.OldestDue.Before(backlog.OldestDue) {
			backlog.OldestDue = own.OldestDue
		}
		if err != nil || webhookID != "" {
			return err
		}
		return s.planned(conn).QueryRow(ctx, s.sql(`select count(*) from storageapi.webhooks where held`)).Scan(&backlog.Held)
	})
	if err != nil {
		return webhooks.Backlog{}, err
	}
	backlog.ExpiredLeases = own.ExpiredLeases
	return backlog, nil
}

// LongestWait implements [webhooks.Store]. It tells of the shards that this node
// owns, as it has looked at them within the time of [PollEvery], or a second.
func (s *Store) LongestWait(ctx context.Context) (time.Duration, error) {
	if _, err := s.lookIfDue(ctx); err != nil {
		return 0, err
	}
	return s.owned.queue.LongestWait(time.Now()), nil
}
