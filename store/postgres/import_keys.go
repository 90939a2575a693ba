package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

var (
	keyRow    = []string{"hash", "next", "account", "id", "name", "scopes", "created_at", "expires_at", "previous", "previous_expires_at", "fields"}
	keyUseRow = []string{"account", "id", "hash", "at", "activity"}
)

const (
	// knownKeys selects the existing keys with the accounts $1 and the ids $2, which are parallel
	// lists.
	knownKeys = `
		select k.account, k.id from unnest($1::text[], $2::text[]) as i (account, id)
		cross join lateral (select account, id from storageapi.keys where account = i.account and id = i.id and next is null limit 1) k`

	// takenHashes selects the hashes among $1 that belong to existing keys.
	takenHashes = `
		select k.hash from unnest($1::bytea[]) as i (hash)
		cross join lateral (select hash from storageapi.keys where hash = i.hash limit 1) k`
)

// addKeys adds keys that do not exist yet.
func (i *importer) addKeys(ctx context.Context) error {
	if len(i.keys) == 0 {
		return nil
	}
	var accounts, ids []string
	var hashes [][]byte
	for _, r := range i.keys {
		accounts, ids, hashes = append(accounts, r.Account), append(ids, r.ID), append(hashes, sum(r.Hash), sum(r.Previous))
	}
	known, taken := make(map[owned]bool), make(map[driver.Hash]bool)
	var name owned
	var hash hashColumn
	batch := &pgx.Batch{}
	batch.Queue(i.sql(knownKeys), accounts, ids).Query(eachRow(func() error { known[name] = true; return nil }, &name.account, &name.id))
	batch.Queue(i.sql(takenHashes), hashes).Query(eachRow(func() error { taken[driver.Hash(hash)] = true; return nil }, &hash))
	if err := i.tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	var rows, uses [][]any
	for _, r := range i.keys {
		name := owned{r.Account, r.ID}
		if known[name] {
			continue
		}
		known[name] = true
		if taken[r.Hash] || taken[r.Previous] {
			return fmt.Errorf("key %q of account %q: one of its hashes %w", r.ID, r.Account, transfer.ErrConflict)
		}
		taken[r.Hash], taken[r.Previous] = true, !r.Previous.IsZero()
		rows = append(rows, keyValues(&r.Key, r.Hash, driver.Hash{}, r.Previous, nil))
		if !r.Previous.IsZero() {
			rows = append(rows, keyValues(&r.Key, r.Previous, r.Hash, driver.Hash{}, nil))
		}
		for _, use := range []struct {
			hash     []byte
			at       time.Time
			activity driver.KeyActivity
		}{{[]byte{}, r.LastUsedAt, r.Activity}, {sum(r.Hash), r.UsedAt, ""}, {sum(r.Previous), r.PreviousUsedAt, ""}} {
			if use.hash != nil && (!use.at.IsZero() || use.activity != "") {
				uses = append(uses, []any{r.Account, r.ID, use.hash, utc(use.at), []byte(use.activity)})
			}
		}
	}
	if err := i.copyTo(ctx, "keys", keyRow, rows); err != nil {
		return err
	}
	return i.copyTo(ctx, "key_uses", keyUseRow, uses)
}
