package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/driver"
)

// erasing is the set of accounts under erasure: the keys of bucketErasures.
type erasing struct {
	accounts atomic.Pointer[map[string]bool]
}

func (e *erasing) has(account string) bool {
	accounts := e.accounts.Load()
	return accounts != nil && (*accounts)[account]
}

// set adds or removes an account. Calls must not overlap: only the writer's steps and Open call
// it.
func (e *erasing) set(account string, on bool) {
	next := make(map[string]bool)
	if accounts := e.accounts.Load(); accounts != nil {
		maps.Copy(next, *accounts)
	}
	if on {
		next[account] = true
	} else {
		delete(next, account)
	}
	e.accounts.Store(&next)
}

// isErasing reports whether the account is under erasure, including an erasure begun in this
// batch.
func (b *batch) isErasing(account string) bool {
	return b.closed[account] || b.store.erasing.has(account)
}

// loadErasing reads the accounts under erasure.
func (s *engine) loadErasing() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketErasures).ForEach(func(account, _ []byte) error {
			s.erasing.set(string(account), true)
			return nil
		})
	})
}

// An erasure is the progress of an account's erasure.
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
	value := tx.Bucket(bucketErasures).Get([]byte(account))
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
	return b.Put(bucketErasures, []byte(e.account), r.Encode())
}

// An eraseStage removes rows of one kind. Rows that are not sorted by account must be searched
// for. find does so outside the writer's steps, so that steps only delete.
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
	{findRows(bucketRecoveries, ofRecovery), eraseRecoveries},
	{findRows(bucketDedupKeys, ofDedupKey), eraseRows(bucketDedupKeys, ofDedupKey, func(r *store.Receipt) *int { return &r.DedupKeys })},
	{findRows(bucketRequestTimes, ofRequestTime), eraseRows(bucketRequestTimes, ofRequestTime, nil)},
	{findPrefixed(bucketRequests, keyRequest), eraseRequests(keyRequest)},
	{findPrefixed(bucketRequests, webhookRequest), eraseRequests(webhookRequest)},
	{findAuditEntries, (*engine).eraseAuditEntries},
	{findPrefixed(bucketAuditRoutine, ""), eraseRoutine},
	{findPrefixed(bucketWebhooks, ""), (*engine).eraseWebhooks},
	{findRows(bucketDeleted, ofDeleted), eraseRows(bucketDeleted, ofDeleted, nil)},
	{findPrefixed(bucketAccounts, ""), (*engine).eraseKeys}, // only rows of keys remain
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
		return beyond, nil
	}
	return record.NumberKey(number), nil
}

// eraseLook is the maximum number of rows of other accounts that one transaction examines.
const eraseLook = 10_000

// EraseAccount implements [store.Eraser]. Keys, webhooks and alerts are sorted by account, but
// finding the account's events requires a scan of all events. Freed pages may contain erased data
// until they are reused.
func (s *engine) EraseAccount(ctx context.Context, account string, limit int) (erased store.Receipt, more bool, err error) {
	e, begun, err := s.findErasure(ctx, account)
	if err != nil {
		return erased, false, err
	}
	if !begun {
		return s.closeAccount(ctx, account)
	}
	looked := e
	err = s.writer.Run(ctx, func(b *batch) error {
		e, begun, err = s.eraseStep(b, looked, max(limit, 1))
		return err
	})
	if err != nil {
		return store.Receipt{}, false, err
	}
	return e.erased, begun && e.stage < len(eraseStages), nil
}

// eraseStep removes about limit records, starting where the search looked ended. It returns begun
// = false if another call has completed the erasure meanwhile.
func (s *engine) eraseStep(b *batch, looked *erasure, limit int) (e *erasure, begun bool, err error) {
	if e, begun = readErasure(b.tx, looked.account); !begun {
		return e, false, nil
	}
	if looked.stage > e.stage || looked.stage == e.stage && bytes.Compare(looked.next, e.next) > 0 {
		e.stage, e.next = looked.stage, looked.next
	}
	if e.stage >= len(eraseStages) {
		return e, true, s.openAccount(b, e.account)
	}
	if err := b.Flush(); err != nil {
		return e, true, err
	}
	if e.next, err = eraseStages[e.stage].erase(s, b, e, limit); err != nil {
		return e, true, err
	}
	return e, true, e.put(b)
}

// findErasure returns the account's erasure, advanced to the next row to remove. begun is false if
// no erasure is under way.
func (s *engine) findErasure(ctx context.Context, account string) (e *erasure, begun bool, err error) {
	look := func() (more bool, err error) {
		tx, err := s.view(ctx)
		if err != nil {
			return false, err
		}
		defer s.done(tx, catchFaults(), &err)
		if e == nil {
			if e, begun = readErasure(tx, account); !begun {
				return false, nil
			}
		}
		for e.stage < len(eraseStages) {
			key, more := eraseStages[e.stage].find(s, tx, e)
			if e.next = bytes.Clone(key); more || key != nil {
				return more, nil
			}
			e.stage++
		}
		return false, nil
	}
	for more := true; more && err == nil; {
		more, err = look()
	}
	return e, begun, err
}

// closeAccount begins an erasure: from then on, steps refuse to change the account.
func (s *engine) closeAccount(ctx context.Context, account string) (erased store.Receipt, more bool, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		e, begun := readErasure(b.tx, account)
		if begun {
			erased = e.erased
			return nil
		}
		if b.closed == nil {
			b.closed = make(map[string]bool)
		}
		b.closed[account] = true
		if e.erased.Alerts, err = s.eraseAlerts(b, account); err != nil {
			return err
		}
		b.AfterCommit(func() {
			s.erasing.set(account, true)
			s.alerts.forgetAccount(account)
			s.log.ForgetAccount(account)
			s.feed.forget(driver.Scope{Account: account})
		})
		erased = e.erased
		return e.put(b)
	})
	return erased, err == nil, err
}

// openAccount ends an erasure: the account can be used again.
func (s *engine) openAccount(b *batch, account string) error {
	b.AfterCommit(func() { s.erasing.set(account, false) })
	return b.Delete(bucketErasures, []byte(account))
}

// eraseAlerts removes the account's alerts.
func (s *engine) eraseAlerts(b *batch, account string) (erased int, err error) {
	prefix := record.Prefixed(account, "")
	rows := make(map[string]bool)
	for _, bucket := range [][]byte{bucketAlerts, bucketDueAlerts} {
		var old [][]byte
		c := b.tx.Bucket(bucket).Cursor()
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			old = append(old, bytes.Clone(k))
			rows[string(k)] = true // includes due alerts without a state
		}
		if err := b.DeleteAll(bucket, old); err != nil {
			return 0, err
		}
	}
	maps.DeleteFunc(b.alerts, func(row string, _ []byte) bool { return strings.HasPrefix(row, string(prefix)) })
	return len(rows), nil
}

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

// prefixed returns up to limit keys of a bucket, the first that begin with kind and the account.
func (e *erasure) prefixed(b *batch, bucket []byte, kind string, limit int) (keys [][]byte) {
	return keysFrom(b, bucket, append([]byte(kind), record.Prefixed(e.account, "")...), limit)
}

// keysFrom returns up to limit keys of a bucket, the first that begin with prefix.
func keysFrom(b *batch, bucket, prefix []byte, limit int) (keys [][]byte) {
	c := b.tx.Bucket(bucket).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(keys) < limit; k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	return keys
}

func eraseRequests(kind string) func(*engine, *batch, *erasure, int) ([]byte, error) {
	return func(s *engine, b *batch, e *erasure, limit int) ([]byte, error) {
		keys := e.prefixed(b, bucketRequests, kind, limit)
		s.requests.add(b, kind, e.account, -len(keys))
		e.erased.IdempotencyKeys += len(keys)
		return nil, b.DeleteAll(bucketRequests, keys)
	}
}

// findAuditEntries finds the rows that hold the numbers of the account's and its targets' last
// entries.
func findAuditEntries(_ *engine, tx *bbolt.Tx, e *erasure) ([]byte, bool) {
	k, _ := tx.Bucket(bucketAccounts).Cursor().Seek(record.AuditEntriesOf(e.account))
	if bytes.HasPrefix(k, record.Prefixed(e.account, "")) {
		return k, false
	}
	return nil, false
}

// eraseAuditEntries removes the account's entries, newest first, and then the rows that hold the
// numbers of the last entries. Rows of keys, which hold such numbers too, remain until eraseKeys.
// Numbers of removed entries are not reused.
func (s *engine) eraseAuditEntries(b *batch, e *erasure, limit int) ([]byte, error) {
	if err := b.tx.Bucket(bucketAudit).SetSequence(lastAuditEntry(b.tx)); err != nil {
		return nil, err
	}
	head := record.AuditEntriesOf(e.account)
	number := lastAuditEntryOf(b.tx, head)
	var erased [][]byte
	for number > 0 && len(erased) < limit {
		entry, err := auditRecord(b.tx, number)
		if err == nil && entry.ID == "" {
			number = 0
			break
		}
		erased = append(erased, record.NumberKey(number))
		if err := b.setPending(e.account, number, false); err != nil {
			return nil, err
		}
		number = entry.Before // 0 for an unreadable entry: purging removes earlier ones
	}
	e.erased.AuditEntries += len(erased)
	slices.Reverse(erased)
	if err := b.DeleteAll(bucketAudit, erased); err != nil {
		return nil, err
	}
	if err := b.setLastAuditEntryOf(head, number); number > 0 || err != nil {
		return nil, err
	}
	return nil, b.DeleteAll(bucketAccounts, keysFrom(b, bucketAccounts, record.AuditEntriesOfTargets(e.account), limit))
}

func eraseRoutine(_ *engine, b *batch, e *erasure, limit int) ([]byte, error) {
	return nil, b.DeleteAll(bucketAuditRoutine, e.prefixed(b, bucketAuditRoutine, "", limit))
}

func (s *engine) eraseWebhooks(b *batch, e *erasure, limit int) ([]byte, error) {
	for _, row := range e.prefixed(b, bucketWebhooks, "", limit) {
		_, id := record.CutPrefixed(row)
		if err := s.removeWebhook(b, e.account, id); err != nil {
			return nil, err
		}
		// An unreadable recovery may have left this row.
		if err := b.Delete(bucketOpenRecoveries, []byte(id)); err != nil {
			return nil, err
		}
		e.erased.Webhooks++
	}
	return nil, nil
}

func (s *engine) eraseKeys(b *batch, e *erasure, limit int) ([]byte, error) {
	for _, row := range e.prefixed(b, bucketAccounts, "", limit) {
		key, _, err := keyByID(b.tx, row)
		if err != nil { // an unreadable key: no other step would find its hash
			if err := b.Delete(bucketKeys, bytes.Clone(record.DecodeAccountRow(b.Get(bucketAccounts, row)).Hash)); err != nil {
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

// findRows returns a find function for the rows for which of returns true.
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

// eraseRows returns an erase function for the rows for which of returns true. The function adds
// the number of erased rows to *count(&e.erased), unless count is nil.
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
			next = beyond // so that the next call finds no rows
		}
		if count != nil {
			*count(&e.erased) += len(old)
		}
		return next, b.DeleteAll(bucket, old)
	}
}

var eraseRecoveryRows = eraseRows(bucketRecoveries, ofRecovery, func(r *store.Receipt) *int { return &r.Recoveries })

// eraseRecoveries removes the account's recoveries and their index rows, including recoveries of
// deleted webhooks.
func eraseRecoveries(s *engine, b *batch, e *erasure, limit int) (next []byte, err error) {
	var open, times [][]byte
	c := b.tx.Bucket(bucketRecoveries).Cursor()
	k, value := c.Seek(e.next)
	for looked := 0; k != nil && looked < limit; looked++ {
		r, err := record.DecodeRecovery(string(k), value)
		if err == nil && r.Account == e.account {
			times = append(times, record.RecoveryTimeKey(&r))
		}
		if err == nil && r.Account == e.account && record.DecodeID(b.Get(bucketOpenRecoveries, []byte(r.WebhookID))) == r.ID {
			open = append(open, []byte(r.WebhookID))
		}
		k, value = c.Next()
	}
	if err := b.DeleteAll(bucketOpenRecoveries, open); err != nil {
		return nil, err
	}
	if err := b.DeleteAll(bucketRecoveryTimes, times); err != nil {
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
