package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store"
)

const accountSizes = `
	select a.account,
		(select count(*) from storageapi.keys where account = a.account and next is null),
		(select count(*) from storageapi.webhooks where account = a.account),
		(select count(*) from storageapi.webhooks w cross join lateral (select from storageapi.pending where webhook = w.no offset 0) q where w.account = a.account)
	from unnest($1::text[]) with ordinality as a (account, place) order by a.place`

// AccountSizes implements [store.Sizer].
func (s *Store) AccountSizes(ctx context.Context, accounts []string) (sizes []store.AccountSize, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := s.planned(conn).Query(ctx, s.sql(accountSizes), texts(accounts))
		if err != nil {
			return err
		}
		sizes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[store.AccountSize])
		return err
	})
	return sizes, err
}
