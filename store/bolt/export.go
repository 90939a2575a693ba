package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/feed"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// Export implements [transfer.Store]. To find the events of one account, it scans all events.
func (s *engine) Export(ctx context.Context, account, after string, limit int) (page transfer.Page, err error) {
	if err := s.flushAlerts(ctx); err != nil && !errors.Is(err, store.ErrReadOnly) {
		return page, err
	}
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, catchFaults(), &err)
	e := &exporter{store: s, tx: tx, account: account, now: record.Round(time.Now())}
	return transfer.Fill(after, limit, e.export)
}

// An exporter reads records for one page.
type exporter struct {
	*transfer.Filler
	store   *engine
	tx      *bbolt.Tx
	account string // empty means all accounts
	now     time.Time
}

func (e *exporter) export(f *transfer.Filler, kind transfer.Kind, after []byte) error {
	e.Filler = f
	switch kind {
	case transfer.KindKey:
		e.rows(schema.Accounts, "", after, e.key)
	case transfer.KindWebhook:
		e.rows(schema.Webhooks, "", after, e.webhook)
	case transfer.KindRequest:
		for _, kind := range requests.Kinds {
			if string(after) < string(kind)+"\xff" && !e.rows(schema.Requests, string(kind), after, e.request) {
				break
			}
		}
	case transfer.KindAlert:
		e.rows(schema.Alerts, "", after, e.alert)
	case transfer.KindDedupKey:
		e.all(schema.DedupKeys, after, e.dedupKey)
	case transfer.KindScan:
		if state := e.tx.Bucket(schema.Meta).Get(schema.MetaScan); e.account == "" && len(state) > 0 && after == nil {
			e.Add(schema.MetaScan, &transfer.Scan{State: bytes.Clone(state)})
		}
	case transfer.KindEvent:
		return e.store.log.View(e.tx).Export(f, e.account, after, e.now)
	case transfer.KindRecovery:
		e.all(schema.Recoveries, after, e.recovery)
	case transfer.KindAuditEntry:
		e.all(schema.Audit, after, e.entry)
	}
	return nil
}

// add adds a record, unless its account is being erased.
func (e *exporter) add(row []byte, r transfer.Record) (more bool) {
	if e.store.erasing.has(r.Owner()) {
		return e.Skip(row)
	}
	return e.Add(row, r)
}

// rows calls read for each row whose key is greater than after and has the prefix begin, followed
// by the account. It returns false if read returned false because the page is full.
func (e *exporter) rows(bucket []byte, begin string, after []byte, read func(row, value []byte) (more bool)) (more bool) {
	prefix := []byte(begin)
	if e.account != "" {
		prefix = append(prefix, record.Prefixed(e.account, "")...)
	}
	c := e.tx.Bucket(bucket).Cursor()
	k, value := c.Seek(prefix)
	if bytes.Compare(after, prefix) > 0 {
		k, value = follow(c, after)
	}
	for ; bytes.HasPrefix(k, prefix) && k != nil; k, value = c.Next() {
		if !read(bytes.Clone(k), value) {
			return false
		}
	}
	return true
}

// all calls read for each row of a bucket whose key is greater than after, until read returns
// false.
func (e *exporter) all(bucket, after []byte, read func(row, value []byte) (more bool)) {
	c := e.tx.Bucket(bucket).Cursor()
	for k, value := follow(c, after); k != nil && read(bytes.Clone(k), value); {
		k, value = c.Next()
	}
}

// follow moves the cursor to the first row after the given key.
func follow(c *bbolt.Cursor, after []byte) (k, value []byte) {
	if k, value = c.Seek(after); k != nil && bytes.Equal(k, after) {
		return c.Next()
	}
	return k, value
}

func (e *exporter) key(row, _ []byte) bool {
	account, id, ok := record.CutAccountKey(row)
	if !ok {
		return e.Skip(row)
	}
	key, used, err := keyByID(e.tx, row)
	if err != nil {
		return e.Unreadable(row, nameOf("key", record.Prefixed(account, id)))
	}
	return e.add(row, &transfer.Key{Key: key, UsedAt: used.Current})
}

func (e *exporter) webhook(row, value []byte) bool {
	account, id := record.CutPrefixed(row)
	w, err := e.store.decodeWebhook(account, id, value)
	if err != nil {
		return e.Unreadable(row, nameOf("webhook", row))
	}
	return e.add(row, &transfer.Webhook{Webhook: w})
}

func nameOf(kind string, row []byte) string {
	account, id := record.CutPrefixed(row)
	return fmt.Sprintf("%s %q of account %q", kind, id, account)
}

func (e *exporter) request(row, value []byte) bool {
	account, name := record.CutPrefixed(row[1:])
	made, err := record.DecodeRequest(value)
	if err != nil {
		return e.Unreadable(row, nameOf("idempotency key", row[1:]))
	}
	return e.add(row, &transfer.Request{
		Account: account, Webhook: row[0] == requests.Webhook[0], IdempotencyKey: name, At: made.At,
		Made: driver.DuplicateRequestError{ID: made.ID, Fingerprint: made.Fingerprint}, KeyID: made.KeyID,
	})
}

func (e *exporter) alert(row, value []byte) bool {
	state := bytes.Clone(record.DecodeAlert(value))
	if len(state) == 0 {
		return e.Unreadable(row, nameOf("alert", row))
	}
	account, series := record.CutPrefixed(row)
	due := e.tx.Bucket(schema.DueAlerts).Get(row) != nil
	return e.add(row, &transfer.Alert{Account: account, Series: series, State: state, Due: due})
}

func (e *exporter) dedupKey(row, _ []byte) bool {
	if len(row) < 8 {
		return e.Unreadable(row, "a deduplication key")
	}
	account, key := record.CutPrefixed(row[8:])
	if e.account != "" && account != e.account {
		return e.Skip(row)
	}
	until := time.UnixMilli(int64(binary.BigEndian.Uint64(row))).UTC()
	return e.add(row, &transfer.DedupKey{Account: account, DedupKey: driver.DedupKey{Key: key, Until: until}})
}

func (e *exporter) recovery(row, value []byte) bool {
	r, err := record.DecodeRecovery(string(row), value)
	switch {
	case err != nil:
		return e.Unreadable(row, fmt.Sprintf("recovery %q", row))
	case e.account != "" && r.Account != e.account:
		return e.Skip(row)
	}
	exported := &transfer.Recovery{Recovery: r.Recovery}
	if !r.Done && e.tx.Bucket(schema.Webhooks).Get(record.Prefixed(r.Account, r.WebhookID)) != nil {
		exported.NextEventID = e.store.log.View(e.tx).NextEvent(r.WebhookID, r.Next)
	}
	return e.add(row, exported)
}

func (e *exporter) entry(number, value []byte) bool {
	n, storedAt, err := auditlog.Read(e.tx, number, value)
	switch {
	case err != nil && n.ID == "":
		return e.Unreadable(number, "an audit entry")
	case e.account != "" && n.Account != e.account:
		return e.Skip(number)
	case err != nil:
		return e.Unreadable(number, nameOf("audit entry", record.Prefixed(n.Account, n.ID)))
	}
	return e.add(number, &transfer.AuditEntry{Entry: n, StoredAt: storedAt})
}

// Accounts implements [transfer.Store].
func (s *engine) Accounts(ctx context.Context, after string, limit int) (accounts []string, err error) {
	if err := s.flushAlerts(ctx); err != nil && !errors.Is(err, store.ErrReadOnly) {
		return nil, err
	}
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	for _, bucket := range [][]byte{schema.Accounts, schema.Webhooks, schema.Alerts} {
		counts := func(row []byte) bool { return true }
		if bytes.Equal(bucket, schema.Accounts) { // if an account has keys, its first row is a key
			counts = func(row []byte) bool {
				_, _, isKey := record.CutAccountKey(row)
				return isKey
			}
		}
		accounts = append(accounts, s.accountsOf(tx.Bucket(bucket).Cursor(), counts, after, limit)...)
	}
	slices.Sort(accounts)
	accounts = slices.Compact(accounts)
	return accounts[:min(limit, len(accounts))], nil
}

// accountsOf returns accounts greater than after from a bucket whose keys begin with the account.
// It skips an account if counts returns false for the account's first row. The result includes the
// limit smallest such accounts, and may include more: the bucket is sorted by the length of the
// account first, so accountsOf reads up to limit accounts of each length.
func (s *engine) accountsOf(c *bbolt.Cursor, counts func(row []byte) bool, after string, limit int) (accounts []string) {
	for first, _ := c.First(); first != nil; {
		length, _ := binary.Uvarint(first)
		begin := binary.AppendUvarint(nil, length)
		k, _ := c.Seek(append(bytes.Clone(begin), after[:min(len(after), int(length))]...))
		for found := 0; bytes.HasPrefix(k, begin) && found < limit; {
			account, _ := record.CutPrefixed(k)
			if account > after && !s.erasing.has(account) && counts(k) {
				accounts = append(accounts, account)
				found++
			}
			k = rows.SeekBeyond(c, k, append(record.Prefixed(account, ""), rows.Beyond...))
		}
		first = rows.SeekBeyond(c, first, binary.AppendUvarint(nil, length+1))
	}
	return accounts
}

// AccountSizes implements [store.Sizer]. It counts each account in a separate read transaction,
// because a long transaction would prevent the reuse of freed pages.
func (s *engine) AccountSizes(ctx context.Context, accounts []string) ([]store.AccountSize, error) {
	pending := make(map[string]int) // by webhook
	err := s.eachPending(ctx, feed.Everything(math.MaxUint64), func(_ time.Time, d driver.PendingDelivery) { pending[d.Webhook.ID]++ })
	if err != nil {
		return nil, err
	}
	var sizes []store.AccountSize
	for _, account := range accounts {
		size, err := s.accountSize(ctx, account, pending)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func (s *engine) accountSize(ctx context.Context, account string, pending map[string]int) (size store.AccountSize, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return size, err
	}
	defer s.done(tx, catchFaults(), &err)
	size.Account = account
	size.Keys = rows.Count(tx.Bucket(schema.Accounts), record.AccountKey(account, ""))
	prefix := record.Prefixed(account, "")
	for k := range rows.WithPrefix(tx.Bucket(schema.Webhooks), prefix) {
		size.Webhooks++
		size.Pending += pending[string(k[len(prefix):])]
	}
	return size, nil
}
