package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// pendingElsewhere counts what is pending of the webhook $1, or if that is empty of all, and tells
// since when the first that is due waits, in the shards but $2.
const pendingElsewhere = `
	select count(*), min(p.due) filter (where w.active and w.held is not true and p.due <= clock_timestamp() and p.shard <> all($2::smallint[]))
	from storageapi.webhooks w
	join storageapi.pending p on p.webhook = w.no
	where $1 = '' or w.id = $1`

// Backlog implements [webhooks.Store]. It counts the pending deliveries: 0.1 s for a million.
// OldestDue counts what is being attempted on other nodes as waiting.
func (s *Store) Backlog(ctx context.Context, webhookID string) (backlog webhooks.Backlog, err error) {
	if err := s.begin(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	s.steps.RUnlock()
	if err := s.lookIfDue(ctx); err != nil {
		return webhooks.Backlog{}, err
	}
	own := s.owned.queue.Backlog(time.Now(), webhookID)
	shards, _ := s.owned.served()
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var oldest *time.Time
		err := s.planned(conn).QueryRow(ctx, s.sql(pendingElsewhere), webhookID, append([]int16{}, shards...)).Scan(&backlog.Pending, &oldest)
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
// owns, as it has looked at them within the time of [PollEvery].
func (s *Store) LongestWait(ctx context.Context) (time.Duration, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	s.steps.RUnlock()
	if err := s.lookIfDue(ctx); err != nil {
		return 0, err
	}
	return s.owned.queue.LongestWait(time.Now()), nil
}
