package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store"
)

const accountSizes = `
	select a.account,
		(select count(*) from storageapi.keys where account = a.account and next is null),
		(select count(*) from storageapi.webhooks where account = a.account),
		(select count(*) from storageapi.webhooks w cross join lateral (select from storageapi.pending where webhook = w.no offset 0) q where w.account = a.account)
	from unnest($1::text[]) with ordinality as a (account, place) order by a.place`

// AccountSizes implements [store.Sizer].
func (s *Store) AccountSizes(ctx context.Context, accounts []string) ([]store.AccountSize, error) {
	return collect(ctx, s, func(row pgx.Row) (size store.AccountSize, err error) {
		err = row.Scan(&size.Account, &size.Keys, &size.Webhooks, &size.Pending)
		return size, err
	}, accountSizes, texts(accounts))
}
