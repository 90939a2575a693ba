package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// holdStep is the maximum number of webhooks that one statement of HoldAll puts on hold.
const holdStep = 1000

var holdWebhooks = query("hold_webhooks")

// HoldAll puts all webhooks of all accounts on hold, and returns how many it has put on hold. Call
// it on a database that was restored from a backup, after [Migrate] and before the first node
// starts: otherwise events delivered since the backup would be sent again. Running nodes respect
// the hold from their next claim on; attempts in flight continue. Release the webhooks with
// webhooks.WebhookService.Release and ReleaseAll.
//
// HoldAll works in steps of 1,000 webhooks. After an error or an interruption, only some webhooks
// may be on hold: call it again.
func HoldAll(ctx context.Context, pool *pgxpool.Pool, options ...Option) (held int, err error) {
	o := optionsOf(options)
	if err := o.check(); err != nil {
		return 0, err
	}
	for after := int64(-1); ; {
		var step int
		err := pool.QueryRow(ctx, o.names.in(holdWebhooks), after, holdStep, changeWebhook).Scan(&step, &after)
		if err != nil {
			return held, fmt.Errorf("hold the webhooks of schema %s: %w", o.schema, failure(ctx, err))
		}
		if held += step; after < 0 {
			return held, nil
		}
	}
}
