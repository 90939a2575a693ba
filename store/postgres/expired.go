package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/driver"
)

var endExpiredPending = query("end_expired")

// endExpired ends up to limit pending deliveries whose payloads have expired, oldest first, and
// returns their number. It also ends deliveries that are being attempted. For all of these
// deliveries, Load then returns Gone on other nodes.
func (s *Store) endExpired(ctx context.Context, limit int) (ended int, err error) {
	expired := driver.ExpiredAttempt(0, time.Now())
	var gone []deliveryPair
	err = s.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		gone, err = rowsOf(ctx, s.with(conn, indexed), func(row pgx.Row) (pair deliveryPair, err error) {
			err = row.Scan(&pair.webhook, &pair.event)
			return pair, err
		}, s.sql(endExpiredPending), limit, expired.StartedAt, string(expired.Class), expired.Error)
		return err
	})
	if err != nil {
		return 0, err
	}
	var refs []driver.DeliveryRef
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range gone {
		if w := o.byNo[r.webhook]; w != nil {
			refs = append(refs, driver.DeliveryRef{WebhookID: w.id, Number: uint64(r.event)})
		}
	}
	if o.scheduler != nil && len(refs) > 0 {
		o.scheduler.Ended(refs)
	}
	return len(gone), nil
}
