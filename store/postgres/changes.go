package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Kinds of changes in the change feed. Each change has parallel lists of shards, webhooks and
// events.
const (
	changeAdded   = iota // the delivery became pending, or due sooner
	changeFirst          // the delivery became pending and must be the next one sent to its webhook
	changeWebhook        // the webhook was changed or deleted; the event is 0
	changeProbe          // a probe of the webhook was requested; the event is 0
	changeNudge          // the delivery was already pending and must be the next one sent to its webhook
	changeErased         // the webhook was deleted as the erasure of its account began; the event is 0
)

// noteChange records a change of the kind $1, with the shards $2, the webhooks $3 and the events
// $4. It must run in the transaction that makes the change.
const noteChange = `
	insert into storageapi.changes (kind, shards, webhooks, events) values ($1::smallint, $2::smallint[], $3::bigint[], $4::bigint[])`

// trimStep is the maximum number of changes that one statement removes, unless a single transaction
// made more.
const trimStep = 5000

var trim = query("trim_changes")

// trimming limits how long one call of trimChanges runs.
const trimming = 200 * time.Millisecond

// trimChanges removes changes that all nodes have read. It runs for at most trimming. The node that
// owns the first shard calls it regularly.
func (s *Store) trimChanges(ctx context.Context) error {
	for began, removed := time.Now(), trimStep; removed >= trimStep && time.Since(began) < trimming; {
		err := s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			return s.with(conn, lookUp, deferred).QueryRow(ctx, s.sql(trim), trimStep).Scan(&removed)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetForeign removes changes that were restored from a dump of another server, and resets their
// trim mark. Otherwise every read would return these changes as new.
func (s *Store) forgetForeign(ctx context.Context) error {
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(forgetForeign))
		return err
	})
}
