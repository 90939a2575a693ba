package boltops

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A table describes the rows of a bucket.
type table struct {
	bucket []byte
	key    func(k []byte) (malformed string) // checks the form of a key; nil if any key is valid

	// check decodes a row. It returns refs to the rows that the row requires in other buckets: its
	// index rows, and the rows to which it refers. If check is nil, any value is valid.
	check func(v *verifier, k, value []byte) (refs []ref, malformed string)

	// owner returns the row to which an index row belongs. If that row's refs do not include the
	// index row, orphan is the problem to report. owner is nil if the bucket is not an index, or if
	// its rows may outlive their owners.
	owner  func(v *verifier, k, value []byte) (bucket, key []byte)
	orphan string

	count func(r *Report, value []byte) // counts a row; nil if rows are not counted
}

// A ref is a row that must exist in another bucket.
type ref struct {
	bucket, key []byte
	has         func(value []byte) bool // checks the value; nil if any value is valid
	// Text of the problem if the row is missing or wrong; empty means "<bucket> does not have it".
	problem string
}

// tables describes all buckets except schema.Events and the buckets in eventTables.
var tables = []table{
	{bucket: schema.Meta, check: (*verifier).meta},
	{bucket: schema.Keys, key: exactly(len(driver.Hash{}.Sum), "a hash"), check: (*verifier).key, count: countKey},
	{bucket: schema.Accounts, key: accountRow, check: (*verifier).account},
	{bucket: schema.KeyUses, check: func(_ *verifier, k, value []byte) ([]ref, string) {
		return []ref{{schema.Accounts, k, nil, "no such key"}}, unless(record.ValidUses(value), cannotBeRead)
	}},
	{bucket: schema.Expiry, key: atLeast(9, "a time, an account and an ID"), owner: func(v *verifier, k, _ []byte) (bucket, key []byte) {
		account, id, _ := bytes.Cut(k[8:], []byte{0})
		row, _ := v.get(schema.Accounts, record.AccountKey(string(account), string(id)))
		return schema.Keys, record.DecodeAccountRow(row).Hash
	}, orphan: "no key expires at this time"},
	{bucket: schema.Webhooks, key: prefixed(0), check: (*verifier).webhook, count: func(r *Report, _ []byte) { r.Webhooks++ }},
	{bucket: schema.WebhookIDs, owner: webhookOf, orphan: "no such webhook"},
	{bucket: schema.Failing, owner: webhookOf, orphan: notListed},
	{bucket: schema.Held, owner: webhookOf, orphan: notListed},
	{bucket: schema.Off, owner: webhookOf, orphan: notListed},
	{bucket: schema.Deleted, check: func(v *verifier, id, account []byte) ([]ref, string) {
		if found, _ := v.get(schema.WebhookIDs, id); found != nil {
			return nil, "the webhook exists"
		}
		return nil, unless(len(account) > 0, cannotBeRead)
	}},
	{bucket: schema.Recoveries, check: func(_ *verifier, id, value []byte) ([]ref, string) {
		r, err := record.DecodeRecovery(string(id), value)
		refs := []ref{{bucket: schema.RecoveryTimes, key: record.RecoveryTimeKey(&r)}}
		if !r.Done {
			refs = append(refs, ref{schema.OpenRecoveries, []byte(r.WebhookID), func(open []byte) bool { return record.DecodeID(open) == r.ID }, ""})
		}
		return refs, unless(err == nil, cannotBeRead)
	}},
	{bucket: schema.OpenRecoveries, owner: func(_ *verifier, _, value []byte) (bucket, key []byte) {
		return schema.Recoveries, []byte(record.DecodeID(value))
	}, orphan: "no such unfinished recovery"},
	{bucket: schema.RecoveryTimes, key: atLeast(9, "a time and a recovery"), check: wantEmpty, owner: func(_ *verifier, k, _ []byte) (bucket, key []byte) {
		return schema.Recoveries, k[8:]
	}, orphan: "no such recovery"},
	// Some of the listed recoveries may have been purged.
	{bucket: schema.WebhookRecoveries, check: func(_ *verifier, webhook, value []byte) ([]ref, string) {
		ids, err := record.DecodeIDs(value)
		return []ref{{schema.WebhookIDs, webhook, nil, "no such webhook"}}, unless(err == nil && len(ids) <= driver.MaxRecoveries, cannotBeRead)
	}},
	{bucket: schema.Requests, key: requestKey, check: func(v *verifier, k, value []byte) ([]ref, string) {
		r, err := record.DecodeRequest(value)
		if account, _, _ := split(k[1:]); v.isErasing(account) {
			return nil, unless(err == nil, cannotBeRead)
		}
		return []ref{{bucket: schema.RequestTimes, key: record.RequestTimeKey(r.At, k)}}, unless(err == nil, cannotBeRead)
	}},
	// These rows have no owner: the request may have been stored again at another time, or removed.
	{bucket: schema.RequestTimes, key: prefixed(9), check: wantEmpty},
	{bucket: schema.Alerts, key: prefixed(0), check: wantVersion},
	{bucket: schema.DueAlerts, key: prefixed(0)},
	{bucket: schema.DedupKeys, key: prefixed(8)},
	{bucket: schema.Erasures, check: wantVersion},
	{bucket: schema.Audit, key: exactly(8, "a number"), check: (*verifier).entry},
	{bucket: schema.AuditPending, check: (*verifier).entryPending},
	{bucket: schema.AuditRoutine, key: routineAuditEntryKey, check: (*verifier).entryRoutine},
}

const (
	cannotBeRead = "unreadable record"
	notListed    = "no webhook belongs in this row"
)

func unless(ok bool, problem string) string {
	if ok {
		return ""
	}
	return problem
}

// exactly returns a check for keys of the given length.
func exactly(length int, want string) func([]byte) string {
	return func(k []byte) string { return unless(len(k) == length, "malformed key: want "+want) }
}

func atLeast(length int, want string) func([]byte) string {
	return func(k []byte) string { return unless(len(k) >= length, "malformed key: want "+want) }
}

// prefixed returns a check for keys that have an account, prefixed with its length, at an offset.
func prefixed(at int) func([]byte) string {
	return func(k []byte) string {
		_, _, ok := split(k[min(at, len(k)):])
		return unless(ok, "malformed key: want account prefix")
	}
}

// accountRow checks a key of the bucket accounts. The account may be empty: audit entries of the
// host have no account.
func accountRow(k []byte) string {
	if len(k) > 0 && k[0] == 0 {
		return ""
	}
	return prefixed(0)(k)
}

func requestKey(k []byte) string {
	if len(k) == 0 || k[0] != 'k' && k[0] != 'w' {
		return "malformed key: want a request kind"
	}
	return prefixed(1)(k)
}

func wantLength(value []byte, want int) string {
	return unless(len(value) == want, fmt.Sprintf("has %d bytes, want %d", len(value), want))
}

func wantVersion(_ *verifier, _, value []byte) ([]ref, string) {
	return nil, unless(len(value) > 0 && value[0] == record.Version, cannotBeRead)
}

func wantEmpty(_ *verifier, _, value []byte) ([]ref, string) {
	return nil, unless(len(value) == 0, "malformed: want an empty value")
}

// split splits a key into its first part, which is prefixed with its length, and the rest.
func split(key []byte) (head, tail string, ok bool) {
	length, n := binary.Uvarint(key)
	if n <= 0 || length == 0 || length > uint64(len(key)-n) {
		return "", "", false
	}
	head, tail = record.CutPrefixed(key)
	return head, tail, true
}

func equals(want []byte) func([]byte) bool {
	return func(value []byte) bool { return bytes.Equal(value, want) }
}

// A verifier checks the rows of a file. It assumes that a bucket with damaged pages has every row
// that other buckets require.
type verifier struct {
	tx     *bbolt.Tx
	report *Report
	broken map[string]bool
	// dataKey opens the signing secrets; nil if it is unknown or the secrets are in plain text.
	dataKey *signing.DataKey
	eventState
}

func (v *verifier) run() {
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
	v.check(tables)
	v.eventBuckets()
	v.report.Counted = true
	for _, name := range [][]byte{schema.Keys, schema.Webhooks, schema.Events, schema.Fresh, schema.Pending} {
		v.report.Counted = v.report.Counted && !v.broken[string(name)]
	}
}

func (v *verifier) check(list []table) {
	for i := range list {
		v.rows(list[i].bucket, func(k, value []byte) string { return v.checkRow(&list[i], k, value) })
	}
}

func (v *verifier) checkRow(t *table, k, value []byte) (problem string) {
	if t.count != nil {
		t.count(v.report, value)
	}
	refs, malformed := v.decode(t, k, value)
	if malformed != "" {
		return malformed
	}
	for _, r := range refs {
		if found, ok := v.get(r.bucket, r.key); ok && (found == nil || r.has != nil && !r.has(found)) {
			if r.problem == "" {
				return "missing from " + string(r.bucket)
			}
			return r.problem
		}
	}
	if t.owner != nil && !v.isOwned(t, k, value) {
		return t.orphan
	}
	return ""
}

// decode checks a row and returns its refs.
func (v *verifier) decode(t *table, k, value []byte) (refs []ref, malformed string) {
	if t.key != nil {
		malformed = t.key(k)
	}
	if malformed == "" && t.check != nil {
		refs, malformed = t.check(v, k, value)
	}
	return refs, malformed
}

// isOwned reports whether the owner of an index row refers to that row. It returns true if the
// owner is malformed, which is reported separately.
func (v *verifier) isOwned(t *table, k, value []byte) bool {
	bucket, key := t.owner(v, k, value)
	found, ok := v.get(bucket, key)
	if !ok || found == nil {
		return !ok
	}
	i := slices.IndexFunc(tables, func(t table) bool { return bytes.Equal(t.bucket, bucket) })
	refs, malformed := v.decode(&tables[i], key, found)
	return malformed != "" || slices.ContainsFunc(refs, func(r ref) bool {
		return bytes.Equal(r.bucket, t.bucket) && bytes.Equal(r.key, k) && (r.has == nil || r.has(value))
	})
}

// rows calls check with each row of a bucket. check returns the problem of the row, or "".
func (v *verifier) rows(bucket []byte, check func(k, value []byte) (problem string)) {
	if v.broken[string(bucket)] {
		return
	}
	var key []byte
	defer func() {
		if p := recover(); p != nil {
			v.broken[string(bucket)] = true
			v.problem(bucket, key, fmt.Sprint("unreadable: ", p))
		}
	}()
	c := v.tx.Bucket(bucket).Cursor()
	for k, value := c.First(); k != nil; k, value = c.Next() {
		key = k
		if problem := check(k, value); problem != "" {
			v.problem(bucket, k, problem)
		}
	}
}

func (v *verifier) problem(bucket, key []byte, what string) {
	v.report.add(Problem{string(bucket), fmt.Sprintf("%q", key), what})
}

// get returns a row of another bucket. ok is false if that bucket has damaged pages.
func (v *verifier) get(bucket, key []byte) (value []byte, ok bool) {
	if v.broken[string(bucket)] {
		return nil, false
	}
	return v.tx.Bucket(bucket).Get(key), true
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
func (v *verifier) meta(k, value []byte) ([]ref, string) {
	switch string(k) {
	case string(schema.MetaRuns), string(schema.MetaEventRuns), string(schema.MetaIDsGone), string(schema.MetaBodiesGone):
		n := record.Number(value)
		switch {
		case len(value) != 8:
			return nil, "malformed: want a number"
		case n > v.tx.Bucket(schema.Events).Sequence()+1:
			return nil, "is greater than the last assigned number"
		case bytes.HasSuffix(k, schema.MetaRuns) && n%eventlog.RunSize != 0:
			return nil, "is not the first number of a run"
		}
	case string(schema.MetaMarks):
		return nil, wantLength(value, 8)
	case string(schema.MetaIDSecret):
		return nil, wantLength(value, len(eventlog.IDSecret{}))
	case string(schema.MetaCursors), string(schema.MetaRestored):
		return nil, wantLength(value, len(cursor.Key{}))
	case string(schema.MetaClock):
		_, err := record.DecodeMark(value)
		return nil, unless(err == nil, cannotBeRead)
	case string(schema.MetaSealed):
		if _, err := v.dataKey.Open(value, string(schema.MetaSealed)); v.isWrong(err) {
			return nil, "is not a sealed secret: " + err.Error()
		}
	}
	return nil, ""
}

// decodeKey returns the key in a row of the bucket keys, or nil.
func decodeKey(hash, value []byte) *driver.Key {
	var key driver.Key
	if len(hash) != len(key.Hash.Sum) || record.DecodeKey(&key, hash, value) != nil {
		return nil
	}
	return &key
}

func (v *verifier) key(hash, value []byte) ([]ref, string) {
	if current, alias := record.DecodeAlias(value); alias {
		return []ref{{schema.Keys, current, func(value []byte) bool {
			key := decodeKey(current, value)
			return key != nil && bytes.Equal(key.Previous.Sum[:], hash)
		}, "is the previous hash of no key"}}, unless(len(current) == len(hash), cannotBeRead)
	}
	key := decodeKey(hash, value)
	if key == nil {
		return nil, cannotBeRead
	}
	refs := []ref{{schema.Accounts, record.AccountKey(key.Account, key.ID), func(row []byte) bool {
		return bytes.Equal(record.DecodeAccountRow(row).Hash, hash)
	}, "missing from accounts under its account and ID"}}
	if !key.Previous.IsZero() && key.Previous != key.Hash {
		refs = append(refs, ref{schema.Keys, key.Previous.Sum[:], equals(record.EncodeAlias(key.Hash)), "the row of its previous hash does not point to it"})
	}
	if expiry := driver.ExpiryOf(key); !expiry.At.IsZero() {
		refs = append(refs, ref{bucket: schema.Expiry, key: record.ExpiryKey(expiry)})
	}
	return refs, ""
}

// account checks a row of the bucket accounts.
func (v *verifier) account(k, value []byte) (refs []ref, malformed string) {
	row := record.DecodeAccountRow(value)
	account, id, isKey := record.CutAccountKey(k)
	switch {
	case isKey:
		refs = []ref{{schema.Keys, row.Hash, func(value []byte) bool {
			_, alias := record.DecodeAlias(value)
			key := decodeKey(row.Hash, value) // a damaged key is reported separately
			return !alias && (key == nil || key.Account == account && key.ID == id)
		}, "no key has this hash, account and ID"}}
	case len(row.Hash) > 0 || row.Last == 0:
		return nil, cannotBeRead
	}
	if row.Last == 0 || v.isErasing(account) {
		return refs, ""
	}
	return append(refs, ref{schema.Audit, record.NumberKey(row.Last), nil, "no audit entry has this number"}), v.wrongLink(row.Last, k)
}

// countKey counts a row of the bucket keys, except aliases for previous hashes.
func countKey(r *Report, value []byte) {
	if _, alias := record.DecodeAlias(value); !alias {
		r.Keys++
	}
}

func (v *verifier) webhook(k, value []byte) ([]ref, string) {
	account, id, _ := split(k)
	w, err := record.InspectWebhook(account, id, value, v.dataKey)
	switch {
	case err != nil && w.ID == "":
		return nil, cannotBeRead
	case v.isWrong(err):
		return nil, "cannot open a signing secret: " + err.Error()
	}
	refs := []ref{{schema.WebhookIDs, []byte(id), equals([]byte(account)), ""}}
	for _, list := range schema.WebhookLists {
		if list.Has(&w) {
			refs = append(refs, ref{bucket: list.Bucket, key: []byte(id)})
		}
	}
	return refs, ""
}

// webhookOf returns the row of the webhook with that ID and account.
func webhookOf(_ *verifier, id, account []byte) (bucket, key []byte) {
	return schema.Webhooks, record.Prefixed(string(account), string(id))
}
