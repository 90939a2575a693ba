package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

const keyColumns = `k.hash, k.next, k.account, k.id, k.name, k.scopes, k.created_at, k.expires_at, k.previous, k.previous_expires_at, k.fields`

// keyUses are the columns that follow keyColumns if the uses of a key are requested.
const keyUses = `,
	(select u.at from storageapi.key_uses u where u.account = k.account and u.id = k.id and u.hash = ''),
	(select u.at from storageapi.key_uses u where u.account = k.account and u.id = k.id and u.hash = k.previous),
	(select u.activity from storageapi.key_uses u where u.account = k.account and u.id = k.id and u.hash = '')`

// keyByID selects the key $2 of the account $1, with its uses.
const keyByID = `select ` + keyColumns + keyUses + ` from storageapi.keys k where k.account = $1 and k.id = $2 and k.next is null`

// lockPackedKey is keyByID, followed by the packed fields. It locks the key.
const lockPackedKey = `select ` + keyColumns + keyUses + `, k.fields from storageapi.keys k where k.account = $1 and k.id = $2 and k.next is null for update`

// A hashColumn scans a hash; null leaves it unchanged.
type hashColumn driver.Hash

func (h *hashColumn) ScanBytes(sum []byte) error {
	copy(h.Sum[:], sum)
	return nil
}

// A packedColumn scans packed fields.
type packedColumn string

func (p *packedColumn) ScanBytes(packed []byte) error {
	*p = packedColumn(packed)
	return nil
}

// scanKey reads keyColumns, keyUses if uses is set, and the columns of more.
func scanKey(row pgx.Row, uses bool, more ...any) (key driver.Key, err error) {
	var names []string
	var packed, activity packedColumn
	var next hashColumn
	columns := []any{(*hashColumn)(&key.Hash), &next, &key.Account, &key.ID, &key.Name, &names, (*instant)(&key.CreatedAt), (*instant)(&key.ExpiresAt),
		(*hashColumn)(&key.Previous), (*instant)(&key.PreviousExpiresAt), &packed}
	if uses {
		columns = append(columns, (*instant)(&key.LastUsedAt), (*instant)(&key.PreviousUsedAt), &activity)
	}
	if err := row.Scan(append(columns, more...)...); err != nil {
		return driver.Key{}, err
	}
	key.Activity = driver.KeyActivity(activity)
	if key.Scopes, err = scopes.FromNames(names); err != nil {
		return driver.Key{}, err
	}
	if next := driver.Hash(next); !next.IsZero() {
		key.Hash, key.Previous = next, key.Hash
	}
	walk := fields.Unpacker(string(packed))
	for walk.More() {
		(*listed.Key)(&key).Fields(&walk)
	}
	return key, walk.Err()
}

func scanUsedKey(row pgx.Row) (driver.Key, error) { return scanKey(row, true) }
func scanBareKey(row pgx.Row) (driver.Key, error) { return scanKey(row, false) }

// packed returns the packed fields of a record, followed by the packed fields that this version
// does not know. It never returns nil, which would be null.
func packed(r fields.Record, unknown []byte) []byte {
	return append(fields.Pack([]byte{}, r), unknown...)
}

// sum returns the column value of a hash: null if it is zero.
func sum(hash driver.Hash) []byte {
	if hash.IsZero() {
		return nil
	}
	return hash.Sum[:]
}

// optional returns the column value of a text: null if it is empty.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// CreateKey implements [driver.KeyStore].
func (s *Store) CreateKey(ctx context.Context, key driver.Key, options driver.CreateOptions) error {
	return s.create(ctx, keyRequests, key.Account, key.ID, &options, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.insertKey(ctx, tx, &key, options.AuditEntry); err != nil {
			return err
		}
		const count = `select count(*) from storageapi.keys where account = $1 and next is null`
		return s.checkLimit(ctx, tx, count, key.Account, options.MaxCount, apierr.ErrLimit)
	})
}

// checkCredential returns auth.ErrCredentialChanged if the credential's key was rotated, disabled or
// deleted after its verification. It locks the key until the transaction ends.
func (s *Store) checkCredential(ctx context.Context, tx pgx.Tx, account string, by auth.Credential) error {
	if by.IsZero() {
		return nil
	}
	key, err := scanBareKey(tx.QueryRow(ctx, s.sql(`select `+keyColumns+` from storageapi.keys k
		where k.account = $1 and k.id = $2 and k.next is null for share`), account, by.KeyID))
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !key.Accepts(by) {
		return auth.ErrCredentialChanged
	}
	return err
}

const insertKey = `
	insert into storageapi.keys (hash, next, account, id, name, scopes, created_at, expires_at, previous, previous_expires_at, fields)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// insertKey adds the rows of a key, or returns ErrExists if another key has its id or one of its
// hashes. It waits for transactions that are adding such a key.
func (s *Store) insertKey(ctx context.Context, tx pgx.Tx, key *driver.Key, entry audit.Entry) error {
	batch := &pgx.Batch{}
	s.queueKey(batch, key, key.Hash, driver.Hash{}, key.Previous, nil)
	s.queuePrevious(batch, key, nil)
	if err := s.queueAuditEntry(batch, entry); err != nil {
		return err
	}
	return taken(tx.SendBatch(ctx, batch).Close())
}

// queuePrevious queues the row of a key's previous hash, if any.
func (s *Store) queuePrevious(batch *pgx.Batch, key *driver.Key, unknown []byte) {
	if !key.Previous.IsZero() && key.Previous != key.Hash {
		s.queueKey(batch, key, key.Previous, key.Hash, driver.Hash{}, unknown)
	}
}

func (s *Store) queueKey(batch *pgx.Batch, key *driver.Key, hash, next, previous driver.Hash, unknown []byte) {
	batch.Queue(s.sql(insertKey), keyValues(key, hash, next, previous, unknown)...)
}

// keyValues returns the arguments of insertKey. unknown has the packed fields that this version
// does not know.
func keyValues(key *driver.Key, hash, next, previous driver.Hash, unknown []byte) []any {
	return []any{
		sum(hash), sum(next), key.Account, key.ID, key.Name, key.Scopes.Names(), utc(key.CreatedAt), stored(key.ExpiresAt), sum(previous),
		stored(key.PreviousExpiresAt), packed((*listed.Key)(key), unknown),
	}
}

// taken converts a unique violation to ErrExists.
func taken(err error) error {
	if code(err) == uniqueViolation {
		return apierr.ErrExists
	}
	return err
}

// KeyByID implements [driver.KeyStore].
func (s *Store) KeyByID(ctx context.Context, account, id string) (driver.Key, error) {
	return only(ctx, s, scanUsedKey, keyByID, account, id)
}

// ListKeys implements [driver.KeyStore].
func (s *Store) ListKeys(ctx context.Context, account string, page driver.ListQuery) ([]driver.Key, error) {
	return collect(ctx, s, scanUsedKey, `select `+keyColumns+keyUses+`
		from storageapi.keys k where k.account = $1 and k.next is null and ($2 = '' or k.id < $2) order by k.id desc limit $3`, account, page.After, page.Limit)
}

// ExpiringKeys implements [driver.KeyStore].
func (s *Store) ExpiringKeys(ctx context.Context, query driver.ExpiryQuery) (keys []driver.Key, err error) {
	return collectInOrder(ctx, s, scanUsedKey, expiringKeys, utc(query.After.At), query.After.Account, query.After.ID, utc(query.Before), query.Limit)
}

const expiringKeys = `select ` + keyColumns + keyUses + `
	from storageapi.keys k where k.next is null and k.expires_at is not null
	and (k.expires_at, k.account, k.id) > ($1, $2, $3) and k.expires_at < $4
	and not exists (select from storageapi.erasures e where e.account = k.account)
	order by k.expires_at, k.account, k.id limit $5`

// UpdateKey implements [driver.KeyStore]. The key is locked while change runs.
func (s *Store) UpdateKey(ctx context.Context, account, id string, change func(*driver.Key, *audit.Entry) error) (changed driver.Key, err error) {
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var newer packedColumn
		old, err := scanKey(tx.QueryRow(ctx, s.sql(lockPackedKey), account, id), true, &newer)
		if err != nil {
			return none(err)
		}
		unknown := fields.Unknown(nil, string(newer), new(listed.Key))
		key := old
		fields.Copy((*listed.Key)(&key))
		var entry audit.Entry
		if err := change(&key, &entry); err != nil {
			return err
		}
		key.ID, key.Account, key.CreatedAt, key.CreatedBy = old.ID, old.Account, old.CreatedAt, old.CreatedBy
		batch := &pgx.Batch{}
		batch.Queue(s.sql(`delete from storageapi.keys where hash = $1 and next is not null`), sum(old.Previous))
		batch.Queue(s.sql(`
			update storageapi.keys set hash = $3, name = $4, scopes = $5, expires_at = $6, previous = $7, previous_expires_at = $8, fields = $9
			where account = $1 and id = $2 and next is null`), account, id,
			sum(key.Hash), key.Name, key.Scopes.Names(), stored(key.ExpiresAt), sum(key.Previous), stored(key.PreviousExpiresAt), packed((*listed.Key)(&key), unknown))
		s.queuePrevious(batch, &key, unknown)
		batch.Queue(s.sql(`delete from storageapi.key_uses where account = $1 and id = $2 and hash not in ('', $3) and hash is distinct from $4`),
			account, id, sum(key.Hash), sum(key.Previous))
		if err := s.queueAuditEntry(batch, entry); err != nil {
			return err
		}
		if err := taken(tx.SendBatch(ctx, batch).Close()); err != nil {
			return err
		}
		changed, err = scanUsedKey(tx.QueryRow(ctx, s.sql(keyByID), account, id))
		return err
	})
	if err != nil {
		return driver.Key{}, err
	}
	s.keyChanged(account, id)
	return changed, nil
}

// DeleteKey implements [driver.KeyStore].
func (s *Store) DeleteKey(ctx context.Context, account, id string, check func(driver.Key) error, entry audit.Entry) error {
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		key, err := scanUsedKey(tx.QueryRow(ctx, s.sql(keyByID+` for update`), account, id))
		if err != nil {
			return none(err)
		}
		if check != nil {
			if err := check(key); err != nil {
				return err
			}
		}
		batch := &pgx.Batch{}
		batch.Queue(s.sql(`delete from storageapi.keys where hash = $1 or hash = $2`), sum(key.Hash), sum(key.Previous))
		batch.Queue(s.sql(`delete from storageapi.key_uses where account = $1 and id = $2`), account, id)
		batch.Queue(s.sql(forgetRequestsOf), account, id)
		if err := s.queueAuditEntry(batch, entry); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err == nil {
		s.keyChanged(account, id)
	}
	return err
}

var recordKeyUses = query("record_key_uses")

const (
	// activitiesOf selects the activity of the keys with the accounts $1 and the ids $2, which are
	// parallel lists.
	activitiesOf = `
		select u.account, u.id, u.at, u.activity from unnest($1::text[], $2::text[]) as i (account, id)
		cross join lateral (select * from storageapi.key_uses where account = i.account and id = i.id and hash = '' limit 1) u`

	setActivities = `
		update storageapi.key_uses u set activity = i.activity from unnest($1::text[], $2::text[], $3::bytea[]) as i (account, id, activity)
		where u.account = i.account and u.id = i.id and u.hash = ''`
)

// RecordKeyUse implements [driver.KeyStore]. It locks the keys against deletion, and their uses, in
// a fixed order.
func (s *Store) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	accounts, ids := column(uses, func(u driver.KeyUse) string { return u.Account }), column(uses, func(u driver.KeyUse) string { return u.ID })
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var row struct {
			owned
			at       instant
			activity packedColumn
		}
		known, changed := make(map[owned]driver.KeyUse), make(map[owned]bool)
		batch := s.batch(indexed)
		batch.Queue(s.sql(recordKeyUses), accounts, ids,
			column(uses, func(u driver.KeyUse) []byte { return u.Hash.Sum[:] }), column(uses, func(u driver.KeyUse) time.Time { return utc(u.At) }))
		batch.Queue(s.sql(activitiesOf), accounts, ids).Query(eachRow(func() error {
			known[row.owned] = driver.KeyUse{At: time.Time(row.at), Activity: driver.KeyActivity(row.activity)}
			return nil
		}, &row.account, &row.id, &row.at, &row.activity))
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		for _, use := range uses {
			name := owned{use.Account, use.ID}
			if key, exists := known[name]; exists && use.Activity != "" {
				before := key.Activity
				key.Activity = before.Add(use.Activity, !utc(use.At).Before(key.At))
				known[name], changed[name] = key, changed[name] || key.Activity != before
			}
		}
		accounts, ids, activities := []string(nil), []string(nil), [][]byte(nil)
		for name := range changed {
			if changed[name] {
				accounts, ids, activities = append(accounts, name.account), append(ids, name.id), append(activities, []byte(known[name].Activity))
			}
		}
		if len(ids) == 0 {
			return nil
		}
		_, err := tx.Exec(ctx, s.sql(setActivities), accounts, ids, activities)
		return err
	})
}
