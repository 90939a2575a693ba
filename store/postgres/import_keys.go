package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/transfer"
)

var (
	keyRow    = []string{"hash", "next", "account", "id", "name", "scopes", "created_at", "expires_at", "previous", "previous_expires_at", "hint", "previous_hint", "created_by"}
	keyUseRow = []string{"account", "id", "hash", "at"}
)

// addKeys adds keys, unless they are there.
func (i *importer) addKeys(ctx context.Context) error {
	known, taken, err := i.knownKeys(ctx)
	if err != nil {
		return err
	}
	var rows, uses [][]any
	for _, r := range i.given.keys {
		name := owned{r.Account, r.ID}
		if known[name] {
			continue
		}
		known[name] = true
		for _, hash := range []apikeys.Hash{r.Hash, r.Previous} {
			if hash.IsZero() {
				continue
			}
			if taken[hash] {
				return fmt.Errorf("key %q of account %q: a hash of it %w", r.ID, r.Account, transfer.ErrConflict)
			}
			taken[hash] = true
		}
		row := func(hash, next, previous apikeys.Hash) []any {
			return []any{
				sum(hash), sum(next), r.Account, r.ID, r.Name, r.Scopes.Names(), utc(r.CreatedAt), stored(r.ExpiresAt), sum(previous), stored(r.PreviousExpiresAt),
				optional(r.Hint), optional(r.PreviousHint), optional(r.CreatedBy.String()),
			}
		}
		rows = append(rows, row(r.Hash, apikeys.Hash{}, r.Previous))
		if !r.Previous.IsZero() {
			rows = append(rows, row(r.Previous, r.Hash, apikeys.Hash{}))
		}
		if !r.LastUsedAt.IsZero() {
			uses = append(uses, []any{r.Account, r.ID, []byte{}, utc(r.LastUsedAt)})
		}
		if !r.UsedAt.IsZero() {
			uses = append(uses, []any{r.Account, r.ID, sum(r.Hash), utc(r.UsedAt)})
		}
		if !r.PreviousUsedAt.IsZero() && !r.Previous.IsZero() {
			uses = append(uses, []any{r.Account, r.ID, sum(r.Previous), utc(r.PreviousUsedAt)})
		}
	}
	if err := i.copyTo(ctx, "keys", keyRow, rows); err != nil {
		return err
	}
	return i.copyTo(ctx, "key_uses", keyUseRow, uses)
}

// knownKeys returns which of the keys are there, and which of their hashes keys have.
func (i *importer) knownKeys(ctx context.Context) (known map[owned]bool, taken map[apikeys.Hash]bool, err error) {
	var accounts, ids []string
	var hashes [][]byte
	for _, r := range i.given.keys {
		accounts, ids = append(accounts, r.Account), append(ids, r.ID)
		hashes = append(hashes, sum(r.Hash))
		if !r.Previous.IsZero() {
			hashes = append(hashes, sum(r.Previous))
		}
	}
	known, taken = make(map[owned]bool), make(map[apikeys.Hash]bool)
	batch := &pgx.Batch{}
	batch.Queue(indexed)
	batch.Queue(i.sql(`
		select k.account, k.id from unnest($1::text[], $2::text[]) as i (account, id)
		cross join lateral (select account, id from storageapi.keys where account = i.account and id = i.id and next is null limit 1) k`), accounts, ids).
		Query(func(rows pgx.Rows) error {
			var name owned
			_, err := pgx.ForEachRow(rows, []any{&name.account, &name.id}, func() error { known[name] = true; return nil })
			return err
		})
	batch.Queue(i.sql(`
		select k.hash from unnest($1::bytea[]) as i (hash)
		cross join lateral (select hash from storageapi.keys where hash = i.hash limit 1) k`), hashes).
		Query(func(rows pgx.Rows) error {
			var hash hashColumn
			_, err := pgx.ForEachRow(rows, []any{&hash}, func() error { taken[apikeys.Hash(hash)] = true; return nil })
			return err
		})
	return known, taken, i.tx.SendBatch(ctx, batch).Close()
}
