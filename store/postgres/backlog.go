package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// Backlog implements [webhooks.Store]. It counts the pending deliveries: 0.1 s for a million.
func (s *Store) Backlog(ctx context.Context, webhookID string) (backlog webhooks.Backlog, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var oldest *time.Time
		err := s.planned(conn).QueryRow(ctx, s.sql(`
			select count(*), min(q.due) filter (where w.active and w.held is not true and q.due <= clock_timestamp() and l.event is null)
			from storageapi.webhooks w
			join storageapi.queue q on q.webhook = w.no
			left join storageapi.leases l on l.account = w.account and l.webhook = q.webhook and l.event = q.event and l.until > clock_timestamp()
			where $1 = '' or w.id = $1`), webhookID).Scan(&backlog.Pending, &oldest)
		backlog.OldestDue = loaded(oldest)
		if err != nil || webhookID != "" {
			return err
		}
		return s.planned(conn).QueryRow(ctx, s.sql(`select count(*) from storageapi.webhooks where held`)).Scan(&backlog.Held)
	})
	if err == nil && webhookID == "" {
		backlog.ExpiredLeases = s.expiredLeases.Load()
	}
	return backlog, err
}
