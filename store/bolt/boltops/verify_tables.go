package boltops

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A table describes the rows of a bucket.
type table struct {
	bucket []byte
	key    func(k []byte) (ok bool) // checks the form of a key; nil if row checks it, or if any key is valid

	// row checks a row: it decodes it, looks up rows that must exist, and calls [verifier.want] for
	// the index rows that the row requires. In an index, it calls [verifier.have]. If row is nil,
	// any value is valid, and the row of an index is one entry.
	row func(v *verifier, k, value []byte) (problem string)

	// source is the bucket whose rows require the rows of this one; nil if this is no index. An index
	// must have each required row and no other row.
	source []byte
}

// tables describes all buckets that segmentTables does not describe.
var tables = []table{
	{bucket: schema.Meta, row: (*verifier).meta},
	{bucket: schema.Keys, key: hasLength(len(driver.Hash{}.Sum)), row: (*verifier).apiKey, source: schema.Keys}, // key records require aliases
	{bucket: schema.Accounts, key: accountRow, row: (*verifier).account, source: schema.Keys},                   // key records require the rows with their hashes
	{bucket: schema.KeyUses, row: (*verifier).keyUses},
	{bucket: schema.Expiry, source: schema.Keys},
	{bucket: schema.Webhooks, key: hasPrefixAt(0), row: (*verifier).webhook},
	{bucket: schema.WebhookIDs, source: schema.Webhooks},
	{bucket: schema.Failing, source: schema.Webhooks},
	{bucket: schema.Held, source: schema.Webhooks},
	{bucket: schema.Off, source: schema.Webhooks},
	{bucket: schema.Deleted, row: (*verifier).deletedWebhook},
	{bucket: schema.Recoveries, row: (*verifier).recovery},
	{bucket: schema.OpenRecoveries, source: schema.Recoveries},
	{bucket: schema.RecoveryTimes, source: schema.Recoveries},
	{bucket: schema.WebhookRecoveries, row: (*verifier).webhookRecoveries},
	{bucket: schema.Requests, key: requestKey, row: (*verifier).request},
	// A row of RequestTimes may outlive its request, which may be removed or stored again.
	{bucket: schema.RequestTimes, key: hasPrefixAt(9), row: wantEmpty},
	{bucket: schema.Alerts, key: hasPrefixAt(0), row: wantVersion},
	{bucket: schema.DueAlerts, key: hasPrefixAt(0)},
	{bucket: schema.DedupKeys, key: hasPrefixAt(8)},
	{bucket: schema.Erasures, row: wantVersion},
	{bucket: schema.Audit, row: (*verifier).auditEntry, source: schema.Accounts}, // the lists of entries begin in Accounts
	{bucket: schema.AuditPending, row: (*verifier).auditPending},
	{bucket: schema.AuditRoutine, row: (*verifier).auditRoutine, source: schema.Audit},
	{bucket: schema.EventIDs, key: hasLength(eventlog.IDRowSize), row: (*verifier).idRow},
	{bucket: schema.Events, row: (*verifier).eventRow}, // if it is damaged, the following tables are skipped
	{bucket: schema.Failed, key: hasNumber(record.MaxFailed), row: (*verifier).failed},
	{bucket: schema.Runs, key: hasNumber(eventlog.RunSize), row: (*verifier).runRow, source: schema.Events},
	{bucket: schema.EventRuns, key: hasNumber(eventlog.RunSize), row: (*verifier).runRow, source: schema.Events},
}

const unreadable = "unreadable record"

func unless(ok bool, problem string) string {
	if ok {
		return ""
	}
	return problem
}

func hasLength(length int) func([]byte) bool {
	return func(k []byte) bool { return len(k) == length }
}

// hasPrefixAt returns a check for keys that have an account, prefixed with its length, at an
// offset.
func hasPrefixAt(at int) func([]byte) bool {
	return func(k []byte) bool {
		_, _, ok := split(k[min(at, len(k)):])
		return ok
	}
}

// hasNumber returns a check for keys that begin with a number divisible by multiple, followed by
// more bytes.
func hasNumber(multiple uint64) func([]byte) bool {
	return func(k []byte) bool { return len(k) >= 9 && record.Number(k[:8])%multiple == 0 }
}

// accountRow checks a key of schema.Accounts. The account may be empty: audit entries of the host
// have no account.
func accountRow(k []byte) bool { return len(k) > 0 && k[0] == 0 || hasPrefixAt(0)(k) }

func requestKey(k []byte) bool {
	return len(k) > 0 && (k[0] == 'k' || k[0] == 'w') && hasPrefixAt(1)(k)
}

func wantLength(value []byte, want int) string {
	return unless(len(value) == want, fmt.Sprintf("has %d bytes, want %d", len(value), want))
}

func wantVersion(_ *verifier, _, value []byte) string {
	return unless(len(value) > 0 && value[0] == record.Version, unreadable)
}

func wantEmpty(_ *verifier, _, value []byte) string { return wantLength(value, 0) }

// split splits a key into its first part, which is prefixed with its length, and the rest.
func split(key []byte) (head, tail string, ok bool) {
	length, n := binary.Uvarint(key)
	if n <= 0 || length == 0 || length > uint64(len(key)-n) {
		return "", "", false
	}
	head, tail = record.CutPrefixed(key)
	return head, tail, true
}

// A verifier checks the rows of a file. It assumes that a bucket with damaged pages has every row
// that other buckets require.
type verifier struct {
	tx          *bbolt.Tx
	report      *Report
	broken      map[string]bool        // buckets that cannot be read to their end, or are not checked
	damaged     map[string]bool        // buckets with a problem in a row
	dataKey     *signing.DataKey       // opens signing secrets; nil if unknown, or if they are in plain text
	comparisons map[string]*comparison // by index bucket

	bucket string // of the current row
	key    []byte
	eventState
}

func (v *verifier) verify() {
	defer func() { // for panics outside [verifier.rows]
		if p := recover(); p != nil {
			v.report.add(Problem{What: fmt.Sprint("unreadable: ", p)})
		}
	}()
	for _, name := range schema.Buckets {
		if v.tx.Bucket(name) == nil {
			v.report.add(Problem{Bucket: string(name), What: "bucket is missing"})
			return // the other checks need this bucket
		}
	}
	v.comparisons, v.damaged = make(map[string]*comparison), make(map[string]bool)
	for _, t := range tables {
		if t.source != nil {
			v.comparisons[string(t.bucket)] = new(comparison)
		}
	}
	v.readTables()
	v.report.Counted = true
	for _, name := range [][]byte{schema.Keys, schema.Webhooks, schema.Events, schema.Fresh, schema.Pending} {
		v.report.Counted = v.report.Counted && !v.broken[string(name)]
	}
	v.nameDifferences()
}

// readTables checks the rows of all buckets. If schema.Events is damaged, readTables skips the
// following tables, because they would report consequences of this damage.
func (v *verifier) readTables() {
	events := string(schema.Events)
	for i := range tables {
		t := &tables[i]
		if string(t.bucket) != events {
			v.rows(t)
			continue
		}
		if !v.broken[events] {
			v.readEvents(t)
		}
		if v.broken[events] || v.damaged[events] {
			for _, t := range slices.Concat(tables[i:], segmentTables) {
				v.broken[string(t.bucket)] = true
			}
		}
	}
}

// rows checks the rows of a bucket.
func (v *verifier) rows(t *table) {
	if v.broken[string(t.bucket)] {
		return
	}
	v.bucket, v.key = string(t.bucket), nil
	defer func() {
		if p := recover(); p != nil {
			v.broken[string(t.bucket)], v.broken[v.bucket] = true, true
			v.problem([]byte(v.bucket), v.key, fmt.Sprint("unreadable: ", p))
		}
	}()
	c := v.tx.Bucket(t.bucket).Cursor()
	for k, value := c.First(); k != nil; k, value = c.Next() {
		v.checkRow(t, k, value)
	}
}

// checkRow checks a row, and reports its problem.
func (v *verifier) checkRow(t *table, k, value []byte) {
	v.bucket, v.key = string(t.bucket), k
	problem := ""
	switch {
	case t.key != nil && !t.key(k):
		problem = "malformed key"
	case t.row != nil:
		problem = t.row(v, k, value)
	case t.source != nil:
		v.have(k, value)
	}
	if problem != "" {
		v.problem(t.bucket, k, problem)
	}
}

func (v *verifier) problem(bucket, key []byte, what string) {
	v.damaged[string(bucket)] = true
	v.report.add(Problem{string(bucket), fmt.Sprintf("%q", key), what})
}

// get returns a row of another bucket. ok is false if that bucket has damaged pages.
func (v *verifier) get(bucket, key []byte) (value []byte, ok bool) {
	if v.broken[string(bucket)] {
		return nil, false
	}
	return v.tx.Bucket(bucket).Get(key), true
}

// refer returns a problem if another bucket lacks a row to which the current row refers.
func (v *verifier) refer(bucket, key []byte) (problem string) {
	value, ok := v.get(bucket, key)
	return unless(!ok || value != nil, fmt.Sprintf("refers to %s %q, which is missing", bucket, key))
}

// isErasing reports whether the account is under erasure. It also returns true if the bucket of
// erasures is unreadable. During an erasure, rows that refer to the account's rows may already be
// deleted.
func (v *verifier) isErasing(account string) bool {
	value, ok := v.get(schema.Erasures, []byte(account))
	return !ok || value != nil
}

// isWrong reports whether err means a damaged secret. It ignores sealed secrets that cannot be
// opened because the data key is missing.
func (v *verifier) isWrong(err error) bool {
	return err != nil && (v.dataKey != nil || !errors.Is(err, signing.ErrSealed))
}

// meta checks a row of the bucket meta. Other programs may have rows in it.
func (v *verifier) meta(k, value []byte) string {
	switch string(k) {
	case string(schema.MetaRuns), string(schema.MetaEventRuns), string(schema.MetaIDsGone), string(schema.MetaBodiesGone):
		if n := record.Number(value); len(value) == 8 && n > v.tx.Bucket(schema.Events).Sequence()+1 {
			return "is greater than the last assigned number"
		} else if bytes.HasSuffix(k, schema.MetaRuns) && n%eventlog.RunSize != 0 {
			return "is not the first number of a run"
		}
		return wantLength(value, 8)
	case string(schema.MetaMarks):
		return wantLength(value, 8)
	case string(schema.MetaIDSecret):
		return wantLength(value, len(eventlog.IDSecret{}))
	case string(schema.MetaCursors), string(schema.MetaRestored):
		return wantLength(value, len(cursor.Key{}))
	case string(schema.MetaClock):
		_, err := record.DecodeMark(value)
		return unless(err == nil, unreadable)
	case string(schema.MetaSealed):
		if _, err := v.dataKey.Open(value, string(schema.MetaSealed)); v.isWrong(err) {
			return "is not a sealed secret: " + err.Error()
		}
	}
	return ""
}

// idRow checks a row of event IDs. [verifier.event] checks whether its IDs lead to their events.
func (v *verifier) idRow(k, value []byte) string {
	entries, err := record.AppendIDEntries(nil, value)
	return unless(err == nil && len(entries) > 0 && eventlog.IDRunOf(k) <= v.tx.Bucket(schema.Events).Sequence(), unreadable)
}

// decodeKey returns the key in a row of the bucket keys, or nil.
func decodeKey(hash, value []byte) *driver.Key {
	var key driver.Key
	if len(hash) != len(key.Hash.Sum) || record.DecodeKey(&key, hash, value) != nil {
		return nil
	}
	return &key
}

func (v *verifier) apiKey(hash, value []byte) string {
	if _, alias := record.DecodeAlias(value); alias {
		v.have(hash, value)
		return ""
	}
	v.report.Keys++
	key := decodeKey(hash, value)
	if key == nil {
		return unreadable
	}
	v.want(schema.Accounts, record.AccountKey(key.Account, key.ID), hash)
	if !key.Previous.IsZero() && key.Previous != key.Hash {
		v.want(schema.Keys, key.Previous.Sum[:], record.EncodeAlias(key.Hash))
	}
	if expiry := driver.ExpiryOf(key); !expiry.At.IsZero() {
		v.want(schema.Expiry, record.ExpiryKey(expiry), nil)
	}
	return ""
}

// account checks the row of a key, or of the audit entries of an account or target.
func (v *verifier) account(k, value []byte) string {
	row := record.DecodeAccountRow(value)
	account, id, isKey := record.CutAccountKey(k)
	list := k
	switch {
	case isKey:
		v.have(k, row.Hash)
		list = record.AuditEntriesOfTarget(account, audit.Target{Kind: audit.TargetKey, ID: id})
	case len(row.Hash) > 0 || row.Last == 0:
		return unreadable
	}
	if row.Last > 0 && !v.isErasing(account) {
		v.want(schema.Audit, record.NumberKey(row.Last), list)
	}
	return ""
}

func (v *verifier) keyUses(k, value []byte) string {
	if !record.ValidUses(value) {
		return unreadable
	}
	return v.refer(schema.Accounts, k)
}

func (v *verifier) webhook(k, value []byte) string {
	v.report.Webhooks++
	account, id, _ := split(k)
	w, err := record.InspectWebhook(account, id, value, v.dataKey)
	if err != nil && w.ID == "" {
		return unreadable
	}
	v.want(schema.WebhookIDs, []byte(id), []byte(account))
	for _, list := range schema.WebhookLists {
		if list.Has(&w) {
			v.want(list.Bucket, []byte(id), []byte(account))
		}
	}
	if v.isWrong(err) {
		return "cannot open a signing secret: " + err.Error()
	}
	return ""
}

func (v *verifier) deletedWebhook(id, account []byte) string {
	if found, _ := v.get(schema.WebhookIDs, id); found != nil {
		return "the webhook exists"
	}
	return unless(len(account) > 0, unreadable)
}

func (v *verifier) recovery(id, value []byte) string {
	r, err := record.DecodeRecovery(string(id), value)
	if err != nil {
		return unreadable
	}
	v.want(schema.RecoveryTimes, record.RecoveryTimeKey(&r), nil)
	if !r.Done {
		v.want(schema.OpenRecoveries, []byte(r.WebhookID), record.EncodeID(r.ID))
	}
	return ""
}

// webhookRecoveries checks the recoveries listed for a webhook, some of which may be purged.
func (v *verifier) webhookRecoveries(webhook, value []byte) string {
	if ids, err := record.DecodeIDs(value); err != nil || len(ids) > driver.MaxRecoveries {
		return unreadable
	}
	return v.refer(schema.WebhookIDs, webhook)
}

func (v *verifier) request(k, value []byte) string {
	r, err := record.DecodeRequest(value)
	if err != nil {
		return unreadable
	}
	if account, _, _ := split(k[1:]); v.isErasing(account) {
		return ""
	}
	return v.refer(schema.RequestTimes, record.RequestTimeKey(r.At, k))
}

// auditEntry checks an audit entry. The entry belongs to two lists: one of its account and one of
// its target. In each list, exactly one row must refer to the entry: the next entry, or the row in
// schema.Accounts.
func (v *verifier) auditEntry(k, value []byte) string {
	row, err := record.DecodeAuditRecord(value)
	if err != nil || row.ID == "" {
		return unreadable
	}
	n, number, err := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	switch {
	case err != nil:
		return unreadable
	case !bytes.Equal(k, record.NumberKey(number)):
		return "number differs from the row's key"
	case row.Before >= number || row.BeforeOfTarget >= number:
		return "back-link does not point to an earlier entry"
	case v.isErasing(row.Account):
		return ""
	}
	first, _ := v.tx.Bucket(schema.Audit).Cursor().First() // earlier entries are purged
	for _, ofTarget := range []bool{false, true} {
		list := record.AuditEntriesOf(row.Account)
		if ofTarget {
			list = record.AuditEntriesOfTarget(row.Account, n.Target)
		}
		v.have(k, list)
		if before := row.Previous(ofTarget); before >= record.Number(first) {
			v.want(schema.Audit, record.NumberKey(before), list)
		}
	}
	if n.Routine() {
		v.want(schema.AuditRoutine, auditlog.RoutineKey(row.Account, number), nil)
		v.want(schema.AuditRoutine, auditlog.RoutineKey(row.Account, 0), nil)
	}
	before, err := record.DecodeAuditRecord(v.tx.Bucket(schema.Audit).Get(record.NumberKey(row.BeforeOfTarget)))
	return unless(err != nil || before.GreatestID() <= row.GreatestID(), "is not the latest entry of its target")
}

func (v *verifier) auditPending(k, value []byte) string {
	account, numbers, ok := auditlog.DecodePending(k, value)
	if !ok || record.Number(value) == 0 {
		return unreadable
	}
	for n := range numbers {
		value, ok := v.get(schema.Audit, record.NumberKey(n))
		row, err := record.DecodeAuditRecord(value)
		if ok && (value == nil || err == nil && row.Account != account) {
			return fmt.Sprintf("the account has no audit entry %d", n)
		}
	}
	return ""
}

// auditRoutine checks the row of a routine audit entry, or the row with an account's number of
// routine entries.
func (v *verifier) auditRoutine(k, value []byte) string {
	account, tail, _ := split(k)
	switch number := record.Number([]byte(tail)); {
	case v.isErasing(account):
		return ""
	case number == 0 && len(value) == 8:
		v.compare(v.bucket, k, nil, -int(record.Number(value)))
	case len(value) == 16:
		v.have(k, nil)
	default:
		return unreadable
	}
	return ""
}
