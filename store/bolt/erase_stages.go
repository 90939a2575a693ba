package bolt

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// An erasure records how far the erasure of an account has progressed.
type erasure struct {
	account string
	stage   int    // index of the current stage in eraseStages
	next    []byte // next key to examine in the bucket of the stage; nil means the first key
	erased  store.Receipt
}

// counted returns pointers to the counts of a receipt, in the order in which the record stores
// them.
func counted(r *store.Receipt) []*int {
	return []*int{&r.Keys, &r.Webhooks, &r.Events, &r.Deliveries, &r.Recoveries, &r.Alerts, &r.DedupKeys, &r.IdempotencyKeys, &r.AuditEntries}
}

// readErasure returns the erasure of the account, and whether it has begun.
func readErasure(tx *bbolt.Tx, account string) (e *erasure, begun bool) {
	e = &erasure{account: account}
	value := tx.Bucket(schema.Erasures).Get([]byte(account))
	if value == nil {
		return e, false
	}
	r := record.DecodeErasure(value)
	e.stage, e.next = r.Stage, r.Next
	for i, n := range counted(&e.erased) {
		if i < len(r.Counts) {
			*n = int(r.Counts[i])
		}
	}
	return e, true
}

func (e *erasure) put(b *batch) error {
	r := record.Erasure{Stage: e.stage, Next: e.next}
	for _, n := range counted(&e.erased) {
		r.Counts = append(r.Counts, uint64(*n))
	}
	return b.Put(schema.Erasures, []byte(e.account), r.Encode())
}

// An eraseStage removes rows of one kind. find searches for rows that are not sorted by account. It
// runs outside write transactions, so that these only delete.
type eraseStage struct {
	// find returns the account's first key at or after e.next, or nil if there is none. If it
	// gives up early, it returns the key at which to continue, and more is true.
	find func(s *engine, tx *bbolt.Tx, e *erasure) (key []byte, more bool)

	// erase removes about limit records from e.next on, and counts them in e.erased. It returns
	// the key at which to continue.
	erase func(s *engine, b *batch, e *erasure, limit int) (next []byte, err error)
}

// Stages run in dependency order: an index row is deleted after the rows it points to.
var eraseStages = []eraseStage{
	{findEvents, eraseEvents},
	{findRows(schema.Recoveries, ofRecovery), eraseRecoveries},
	{findRows(schema.DedupKeys, ofDedupKey), eraseRows(schema.DedupKeys, ofDedupKey, func(r *store.Receipt) *int { return &r.DedupKeys })},
	{findRows(schema.RequestTimes, ofRequestTime), eraseRows(schema.RequestTimes, ofRequestTime, nil)},
	{findPrefixed(schema.Requests, string(requests.Key)), eraseRequests(requests.Key)},
	{findPrefixed(schema.Requests, string(requests.Webhook)), eraseRequests(requests.Webhook)},
	{findAuditEntries, eraseAuditEntries},
	{findPrefixed(schema.AuditRoutine, ""), eraseRoutine},
	{findPrefixed(schema.Webhooks, ""), (*engine).eraseWebhooks},
	{findRows(schema.Deleted, ofDeleted), eraseRows(schema.Deleted, ofDeleted, nil)},
	{findPrefixed(schema.Accounts, ""), (*engine).eraseKeys}, // by now, only rows of keys remain
}

// findEvents returns the key of the next segment that has events of the account.
func findEvents(s *engine, tx *bbolt.Tx, e *erasure) (key []byte, more bool) {
	number, found, more := s.log.View(tx).FindOf(e.account, eventsFrom(e))
	if found || more {
		key = record.NumberKey(number)
	}
	return key, more
}

func eventsFrom(e *erasure) uint64 {
	if len(e.next) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(e.next)
}

// eraseEvents removes the account's events, with their deliveries and attempts.
func eraseEvents(_ *engine, b *batch, e *erasure, limit int) (next []byte, err error) {
	number, more, erased, err := b.log.Erase(e.account, eventsFrom(e), limit)
	if err != nil {
		return nil, err
	}
	e.erased.Events += erased.Events
	e.erased.Deliveries += erased.Deliveries
	if !more {
		return rows.Beyond, nil
	}
	return record.NumberKey(number), nil
}

// eraseLook is the maximum number of rows of other accounts that one transaction examines.
const eraseLook = 10_000

// findPrefixed returns a find function for rows whose keys begin with kind and the account.
func findPrefixed(bucket []byte, kind string) func(*engine, *bbolt.Tx, *erasure) ([]byte, bool) {
	return func(_ *engine, tx *bbolt.Tx, e *erasure) ([]byte, bool) {
		prefix := append([]byte(kind), record.Prefixed(e.account, "")...)
		if k, _ := tx.Bucket(bucket).Cursor().Seek(prefix); bytes.HasPrefix(k, prefix) {
			return k, false
		}
		return nil, false
	}
}

// keys returns the first keys of a bucket that begin with the account, at most limit.
func (e *erasure) keys(b *batch, bucket []byte, limit int) [][]byte {
	return rows.Keys(b.tx.Bucket(bucket), record.Prefixed(e.account, ""), limit)
}

func eraseRequests(kind requests.Kind) func(*engine, *batch, *erasure, int) ([]byte, error) {
	return func(s *engine, b *batch, e *erasure, limit int) ([]byte, error) {
		erased, err := s.requests.Erase(b.Tx, kind, e.account, limit)
		e.erased.IdempotencyKeys += erased
		return nil, err
	}
}

// findAuditEntries finds a row that holds the number of the last audit entry of the account or of
// one of its targets.
func findAuditEntries(_ *engine, tx *bbolt.Tx, e *erasure) ([]byte, bool) {
	k, _ := tx.Bucket(schema.Accounts).Cursor().Seek(record.AuditEntriesOf(e.account))
	if bytes.HasPrefix(k, record.Prefixed(e.account, "")) {
		return k, false
	}
	return nil, false
}

// eraseAuditEntries removes the account's audit entries. The rows of keys, which also hold numbers
// of last entries, remain until eraseKeys removes them.
func eraseAuditEntries(_ *engine, b *batch, e *erasure, limit int) ([]byte, error) {
	erased, err := b.audit.Erase(e.account, limit)
	e.erased.AuditEntries += erased
	return nil, err
}

func eraseRoutine(_ *engine, b *batch, e *erasure, limit int) ([]byte, error) {
	return nil, b.DeleteAll(schema.AuditRoutine, e.keys(b, schema.AuditRoutine, limit))
}

func (s *engine) eraseWebhooks(b *batch, e *erasure, limit int) ([]byte, error) {
	for _, row := range e.keys(b, schema.Webhooks, limit) {
		_, id := record.CutPrefixed(row)
		if err := s.removeWebhook(b, e.account, id); err != nil {
			return nil, err
		}
		// An unreadable recovery may have left this row.
		if err := b.Delete(schema.OpenRecoveries, []byte(id)); err != nil {
			return nil, err
		}
		e.erased.Webhooks++
	}
	return nil, nil
}

func (s *engine) eraseKeys(b *batch, e *erasure, limit int) ([]byte, error) {
	for _, row := range e.keys(b, schema.Accounts, limit) {
		key, _, err := keyByID(b.tx, row)
		if err != nil { // an unreadable key: no other step would find its hash
			if err := b.Delete(schema.Keys, bytes.Clone(record.DecodeAccountRow(b.Get(schema.Accounts, row)).Hash)); err != nil {
				return nil, err
			}
		}
		if err := s.removeKey(b, row, key); err != nil {
			return nil, err
		}
		e.erased.Keys++
	}
	return nil, nil
}

// findRows returns a find function for the rows where of(account, k, value) is true.
func findRows(bucket []byte, of func(account string, k, value []byte) bool) func(*engine, *bbolt.Tx, *erasure) ([]byte, bool) {
	return func(_ *engine, tx *bbolt.Tx, e *erasure) ([]byte, bool) {
		c := tx.Bucket(bucket).Cursor()
		looked := 0
		for k, value := c.Seek(e.next); k != nil; k, value = c.Next() {
			if of(e.account, k, value) {
				return k, false
			}
			if looked++; looked == eraseLook {
				return k, true
			}
		}
		return nil, false
	}
}

// eraseRows returns an erase function for the rows where of(account, k, value) is true. The
// function adds the number of erased rows to *count(&e.erased), unless count is nil.
func eraseRows(bucket []byte, of func(account string, k, value []byte) bool, count func(*store.Receipt) *int) func(*engine, *batch, *erasure, int) ([]byte, error) {
	return func(_ *engine, b *batch, e *erasure, limit int) (next []byte, err error) {
		var old [][]byte
		c := b.tx.Bucket(bucket).Cursor()
		k, value := c.Seek(e.next)
		for looked := 0; k != nil && looked < limit; looked++ {
			if of(e.account, k, value) {
				old = append(old, bytes.Clone(k))
			}
			k, value = c.Next()
		}
		if next = bytes.Clone(k); next == nil {
			next = rows.Beyond // so that the next call finds no rows
		}
		if count != nil {
			*count(&e.erased) += len(old)
		}
		return next, b.DeleteAll(bucket, old)
	}
}

var eraseRecoveryRows = eraseRows(schema.Recoveries, ofRecovery, func(r *store.Receipt) *int { return &r.Recoveries })

// eraseRecoveries removes the account's recoveries and their index rows, including recoveries of
// deleted webhooks.
func eraseRecoveries(s *engine, b *batch, e *erasure, limit int) (next []byte, err error) {
	var unfinished, times [][]byte
	c := b.tx.Bucket(schema.Recoveries).Cursor()
	k, value := c.Seek(e.next)
	for looked := 0; k != nil && looked < limit; looked++ {
		r, err := record.DecodeRecovery(string(k), value)
		if err == nil && r.Account == e.account {
			times = append(times, record.RecoveryTimeKey(&r))
		}
		if err == nil && r.Account == e.account && record.DecodeID(b.Get(schema.OpenRecoveries, []byte(r.WebhookID))) == r.ID {
			unfinished = append(unfinished, []byte(r.WebhookID))
		}
		k, value = c.Next()
	}
	if err := b.DeleteAll(schema.OpenRecoveries, unfinished); err != nil {
		return nil, err
	}
	if err := b.DeleteAll(schema.RecoveryTimes, times); err != nil {
		return nil, err
	}
	return eraseRecoveryRows(s, b, e, limit)
}

func ofRecovery(account string, k, value []byte) bool {
	r, err := record.DecodeRecovery(string(k), value)
	return err == nil && r.Account == account
}

// ofDeleted reports whether a deleted webhook belonged to the account. An earlier stage has erased
// its deliveries.
func ofDeleted(account string, _, value []byte) bool { return string(value) == account }

func ofDedupKey(account string, k, _ []byte) bool {
	return len(k) > 8 && bytes.HasPrefix(k[8:], record.Prefixed(account, ""))
}

func ofRequestTime(account string, k, _ []byte) bool {
	return len(k) > 9 && bytes.HasPrefix(k[9:], record.Prefixed(account, ""))
}
