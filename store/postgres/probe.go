package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apierr"
)

// askProbe requests a probe: it adds a change of the kind $4, in the shard $3, for the webhook $2
// of the account $1.
const askProbe = `
	insert into storageapi.changes (kind, shards, webhooks, events)
	select $4::smallint, array[$3::smallint], array[no], array[0] from storageapi.webhooks where account = $1 and id = $2
	returning true`

// Probe implements [driver.WebhookStore].
func (s *Store) Probe(ctx context.Context, account, webhookID string) error {
	err := s.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var asked bool
		err := s.planned(conn).QueryRow(ctx, s.sql(askProbe), account, webhookID, shardOf(account), changeProbe).Scan(&asked)
		if errors.Is(err, pgx.ErrNoRows) {
			err = apierr.ErrNotFound
		}
		return err
	})
	if err == nil {
		s.changed(account)
	}
	return err
}
