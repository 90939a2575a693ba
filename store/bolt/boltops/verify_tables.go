package boltops

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/webhooks"
)

// A table describes the rows of a bucket: how to decode a row, and which rows of other buckets must exist.
type table struct {
	bucket []byte
	check  func(v *verifier, k, value []byte) (refs []ref, malformed string)
}

// A ref is a row that another bucket must have.
type ref struct {
	bucket, key []byte
	has         func(value []byte) bool // nil: any value will do
	problem     string                  // if the row does not exist; empty: "<bucket> does not have it"
}

// tables are all buckets but those of events, see [verifier.events].
var tables = []table{
	{schema.Meta, (*verifier).meta},
	{schema.Keys, (*verifier).key},
	{schema.KeyIDs, (*verifier).keyID},
	{schema.KeyUses, func(_ *verifier, k, value []byte) ([]ref, string) {
		return []ref{{schema.KeyIDs, k, nil, "there is no such key"}}, unless(record.ValidUses(value), fmt.Sprintf("has %d bytes, and should have 8 or 24", len(value)))
	}},
	{schema.Expiry, (*verifier).expiry},
	{schema.Webhooks, (*verifier).webhook},
	{schema.WebhookIDs, func(_ *verifier, id, account []byte) ([]ref, string) {
		return []ref{{schema.Webhooks, record.Prefixed(string(account), string(id)), nil, "there is no such webhook"}}, ""
	}},
	{schema.Deleted, func(v *verifier, id, account []byte) ([]ref, string) {
		if found, _ := v.get(schema.WebhookIDs, id); found != nil {
			return nil, "there is such a webhook"
		}
		return nil, unless(len(account) > 0, cannotBeRead)
	}},
	webhookList(0), webhookList(1), webhookList(2),
	{schema.Recoveries, func(_ *verifier, id, value []byte) ([]ref, string) {
		r, err := record.DecodeRecovery(string(id), value)
		refs := []ref{{bucket: schema.RecoveryTimes, key: record.RecoveryTimeKey(&r)}}
		if !r.Done {
			refs = append(refs, ref{schema.OpenRecoveries, []byte(r.WebhookID), func(open []byte) bool { return record.DecodeID(open) == r.ID }, ""})
		}
		return refs, unless(err == nil, cannotBeRead)
	}},
	{schema.OpenRecoveries, func(_ *verifier, webhook, value []byte) ([]ref, string) {
		id := record.DecodeID(value)
		return []ref{{schema.Recoveries, []byte(id), func(value []byte) bool {
			r, err := record.DecodeRecovery(id, value)
			return err != nil || !r.Done && r.WebhookID == string(webhook)
		}, "there is no such recovery, or it is done"}}, ""
	}},
	{schema.RecoveryTimes, func(_ *verifier, k, value []byte) ([]ref, string) {
		if len(k) < 9 || len(value) > 0 {
			return nil, "malformed: want a time and a recovery"
		}
		return []ref{{schema.Recoveries, k[8:], nil, "there is no such recovery"}}, ""
	}},
	{schema.WebhookRecoveries, func(_ *verifier, webhook, value []byte) ([]ref, string) { // some of the recoveries may be purged
		ids, err := record.DecodeIDs(value)
		return []ref{{schema.WebhookIDs, webhook, nil, "there is no such webhook"}}, unless(err == nil && len(ids) <= webhooks.MaxRecoveries, cannotBeRead)
	}},
	{schema.Requests, func(v *verifier, k, value []byte) ([]ref, string) {
		if len(k) == 0 || k[0] != 'k' && k[0] != 'w' {
			return nil, "malformed key: want the kind of a request"
		}
		account, _, ok := split(k[1:])
		r, err := record.DecodeRequest(value)
		switch {
		case !ok:
			return nil, wantAccount
		case err != nil:
			return nil, cannotBeRead
		case v.isErasing(account):
			return nil, ""
		}
		return []ref{{bucket: schema.RequestTimes, key: record.RequestTimeKey(r.At, k)}}, ""
	}},
	{schema.RequestTimes, func(_ *verifier, k, value []byte) ([]ref, string) { // the request may have been made again, or be forgotten
		if len(k) < 10 || len(value) > 0 {
			return nil, "malformed: want a time and a request"
		}
		return wantPrefixed(k[9:])
	}},
	{schema.Alerts, func(_ *verifier, k, value []byte) ([]ref, string) {
		_, metric, ok := split(k)
		if !ok || metric == "" {
			return nil, wantAccount
		}
		return wantVersion(value)
	}},
	{schema.DueAlerts, func(_ *verifier, k, _ []byte) ([]ref, string) {
		_, metric, ok := split(k)
		return nil, unless(ok && metric == string(webhooks.MetricBalance), "is not the alert for the balance of an account")
	}},
	{schema.DedupKeys, func(_ *verifier, k, _ []byte) ([]ref, string) { return wantPrefixed(k[min(8, len(k)):]) }},
	{schema.Erasures, func(_ *verifier, _, value []byte) ([]ref, string) { return wantVersion(value) }},
	{schema.Notices, (*verifier).notice},
	{schema.NoticeHeads, (*verifier).noticeHead},
	{schema.NoticesPending, (*verifier).noticePending},
	{schema.NoticesRoutine, (*verifier).noticeRoutine},
}

const (
	cannotBeRead = "the record cannot be read"
	wantAccount  = "malformed key: want account prefix"
	wantNumber   = "malformed key: want a number"
)

func unless(ok bool, problem string) string {
	if ok {
		return ""
	}
	return problem
}

func wantLength(value []byte, want int) string {
	return unless(len(value) == want, fmt.Sprintf("has %d bytes, and should have %d", len(value), want))
}

func wantVersion(value []byte) ([]ref, string) {
	return nil, unless(len(value) > 0 && value[0] == record.Version, cannotBeRead)
}

func wantPrefixed(key []byte) ([]ref, string) {
	_, _, ok := split(key)
	return nil, unless(ok, wantAccount)
}

// split returns the account, or another head, and the rest of a prefixed key.
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

// A verifier checks the rows of a file. Rows of buckets with damaged pages count as existing.
type verifier struct {
	tx     *bbolt.Tx
	report *Report
	broken map[string]bool
	keys   *signing.Keyring
	events eventVerifier
}

func newVerifier(tx *bbolt.Tx, report *Report, broken map[string]bool, keys *signing.Keyring) *verifier {
	v := &verifier{tx: tx, report: report, broken: broken, keys: keys}
	v.events.verifier = v
	return v
}

func (v *verifier) run() {
	defer func() { // of buckets that rows does not read
		if p := recover(); p != nil {
			v.report.add(Problem{What: fmt.Sprint("cannot be read: ", p)})
		}
	}()
	for _, name := range schema.Buckets {
		if v.tx.Bucket(name) == nil {
			v.report.add(Problem{Bucket: string(name), What: "the bucket is missing"})
			return // no other bucket can refer to it
		}
	}
	for _, t := range tables {
		v.rows(t.bucket, func(k, value []byte) string { return v.checkRow(&t, k, value) })
	}
	v.events.run()
	v.report.Counted = true
	for _, name := range [][]byte{schema.Keys, schema.Webhooks, schema.Events, schema.Fresh, schema.Pending} {
		v.report.Counted = v.report.Counted && !v.broken[string(name)]
	}
}

func (v *verifier) checkRow(t *table, k, value []byte) (problem string) {
	refs, malformed := t.check(v, k, value)
	if malformed != "" {
		return malformed
	}
	for _, r := range refs {
		if found, ok := v.get(r.bucket, r.key); ok && (found == nil || r.has != nil && !r.has(found)) {
			if r.problem == "" {
				return string(r.bucket) + " does not have it"
			}
			return r.problem
		}
	}
	return ""
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
			v.problem(bucket, key, fmt.Sprint("cannot be read: ", p))
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

// get returns a row of another bucket; ok is false if that bucket has damaged pages.
func (v *verifier) get(bucket, key []byte) (value []byte, ok bool) {
	if v.broken[string(bucket)] {
		return nil, false
	}
	return v.tx.Bucket(bucket).Get(key), true
}

// isErasing reports whether the account is being erased, or whether that cannot be read. Some of the rows that led
// to rows of such an account are deleted.
func (v *verifier) isErasing(account string) bool {
	value, ok := v.get(schema.Erasures, []byte(account))
	return !ok || value != nil
}

// isWrong reports whether a secret is damaged. Without keys a sealed secret cannot be opened.
func (v *verifier) isWrong(err error) bool {
	return err != nil && (v.keys != nil || !errors.Is(err, signing.ErrSealed))
}

// meta checks a row of the bucket meta. Other programs may have rows in it.
func (v *verifier) meta(k, value []byte) ([]ref, string) {
	switch string(k) {
	case string(schema.MetaRuns), string(schema.MetaIDsGone), string(schema.MetaBodiesGone):
		n := number(value)
		switch {
		case len(value) != 8:
			return nil, "malformed: want a number"
		case n > v.tx.Bucket(schema.Events).Sequence()+1:
			return nil, "is a number after the last one given"
		case string(k) == string(schema.MetaRuns) && n%eventlog.RunSize != 0:
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
		if _, err := v.keys.Open(value, string(schema.MetaSealed)); v.isWrong(err) {
			return nil, "is not a sealed secret: " + err.Error()
		}
	}
	return nil, ""
}

// decodeKey returns the key in a row of the bucket keys, or nil.
func decodeKey(hash, value []byte) *apikeys.Key {
	var key apikeys.Key
	if len(hash) != len(key.Hash.Sum) || record.DecodeKey(&key, hash, value) != nil {
		return nil
	}
	return &key
}

func (v *verifier) key(hash, value []byte) ([]ref, string) {
	if len(hash) != len(apikeys.Hash{}.Sum) {
		return nil, "malformed key: want a hash"
	}
	if current, alias := record.DecodeAlias(value); alias {
		return []ref{{schema.Keys, current, func(value []byte) bool {
			key := decodeKey(current, value)
			return key != nil && bytes.Equal(key.Previous.Sum[:], hash)
		}, "is a previous hash of no key"}}, unless(len(current) == len(hash), cannotBeRead)
	}
	key := decodeKey(hash, value)
	if key == nil {
		return nil, cannotBeRead
	}
	v.report.Keys++
	refs := []ref{{schema.KeyIDs, record.Prefixed(key.Account, key.ID), equals(hash), "key_ids does not have it under its account and ID"}}
	if !key.Previous.IsZero() && key.Previous != key.Hash {
		refs = append(refs, ref{schema.Keys, key.Previous.Sum[:], equals(record.EncodeAlias(key.Hash)), "its previous hash does not lead to it"})
	}
	if expiry := apikeys.ExpiryOf(key); !expiry.At.IsZero() {
		refs = append(refs, ref{bucket: schema.Expiry, key: record.ExpiryKey(expiry)})
	}
	return refs, ""
}

func (v *verifier) keyID(k, hash []byte) ([]ref, string) {
	account, id, ok := split(k)
	return []ref{{schema.Keys, hash, func(value []byte) bool {
		key := decodeKey(hash, value) // a damaged key has a problem of its own
		return key == nil || key.Account == account && key.ID == id
	}, "there is no key of that hash, account and ID"}}, unless(ok, wantAccount)
}

func (v *verifier) expiry(k, _ []byte) ([]ref, string) {
	account, id, ok := bytes.Cut(k[min(8, len(k)):], []byte{0})
	return []ref{{schema.KeyIDs, record.Prefixed(string(account), string(id)), func(hash []byte) bool {
		value, ok := v.get(schema.Keys, hash)
		key := decodeKey(hash, value)
		return !ok || key != nil && bytes.Equal(record.ExpiryKey(apikeys.ExpiryOf(key)), k)
	}, "there is no key that expires then"}}, unless(ok, "malformed key: want a time, an account and an ID")
}

func (v *verifier) webhook(k, value []byte) ([]ref, string) {
	account, id, ok := split(k)
	if !ok {
		return nil, wantAccount
	}
	v.report.Webhooks++
	w, err := record.InspectWebhook(account, id, value, v.keys)
	switch {
	case err != nil && w.ID == "":
		return nil, cannotBeRead
	case v.isWrong(err):
		return nil, "a signing secret cannot be opened: " + err.Error()
	}
	refs := []ref{{schema.WebhookIDs, []byte(id), equals([]byte(account)), ""}}
	for _, list := range schema.WebhookLists {
		if list.Has(&w) {
			refs = append(refs, ref{bucket: list.Bucket, key: []byte(id)})
		}
	}
	return refs, ""
}

// webhookList is the table of a list of webhooks.
func webhookList(i int) table {
	list := schema.WebhookLists[i]
	return table{list.Bucket, func(v *verifier, id, account []byte) ([]ref, string) {
		return []ref{{schema.Webhooks, record.Prefixed(string(account), string(id)), func(value []byte) bool {
			w, _ := record.InspectWebhook(string(account), string(id), value, v.keys)
			return w.ID == "" || list.Has(&w)
		}, "there is no such webhook that belongs here"}}, ""
	}}
}
