package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// A rowChecker checks the rows of a file whose pages fit. What it looks up in a bucket whose
// pages do not fit counts as found.
type rowChecker struct {
	tx     *bbolt.Tx
	report *Report
	broken map[string]bool
	keys   *signing.Keyring

	segments *segments
	first    uint64 // number of an event; those before it are purged
	last     uint64 // number that was given
	secret   idSecret
	idRuns   []idRun // ascending
}

func newRowChecker(tx *bbolt.Tx, report *Report, broken map[string]bool, keys *signing.Keyring) *rowChecker {
	return &rowChecker{tx: tx, report: report, broken: broken, keys: keys}
}

// run checks all buckets.
func (v *rowChecker) run() {
	defer func() { // of what rows does not survive by itself
		if p := recover(); p != nil {
			v.report.add("", "", "it cannot be read: %v", p)
		}
	}()
	for _, name := range buckets {
		if v.tx.Bucket(name) == nil {
			v.report.add(string(name), "", "the bucket is missing")
			return // it is not looked up from here on
		}
	}
	v.rows(bucketMeta, v.meta)
	v.rows(bucketKeys, v.key)
	v.rows(bucketKeyIDs, v.keyID)
	v.rows(bucketKeyUses, v.keyUses)
	v.rows(bucketExpiry, v.expiry)
	v.rows(bucketWebhooks, v.webhook)
	v.rows(bucketWebhookIDs, v.webhookID)
	v.rows(bucketDeleted, v.deletedWebhook)
	for _, list := range webhookLists {
		v.rows(list.bucket, func(id, account []byte) string { return v.listed(id, account, list.has) })
	}
	v.rows(bucketRecoveries, v.recovery)
	v.rows(bucketOpenRecoveries, v.openRecovery)
	v.rows(bucketRecoveryTimes, v.recoveryTime)
	v.rows(bucketWebhookRecoveries, v.webhookRecoveries)
	v.rows(bucketRequests, v.request)
	v.rows(bucketRequestTimes, v.requestTime)
	v.rows(bucketAlerts, v.alert)
	v.rows(bucketDueAlerts, v.dueAlert)
	v.rows(bucketDedupKeys, v.dedupKey)
	v.rows(bucketErasures, v.erasure)
	v.rows(bucketNotices, v.notice)
	v.rows(bucketNoticeHeads, v.noticeHead)
	v.rows(bucketNoticesPending, v.noticePending)
	v.rows(bucketNoticesRoutine, v.noticeRoutine)
	v.deliveries()
	v.report.Counted = !v.broken[string(bucketKeys)] && !v.broken[string(bucketWebhooks)] && !v.broken[string(bucketEvents)] &&
		!v.broken[string(bucketFresh)] && !v.broken[string(bucketPending)]
}

// rows calls check with each row of a bucket, which returns what is wrong with it, or nothing.
func (v *rowChecker) rows(bucket []byte, check func(k, value []byte) string) {
	if v.broken[string(bucket)] {
		return
	}
	var key []byte
	defer func() {
		if p := recover(); p != nil {
			v.broken[string(bucket)] = true
			v.problem(bucket, key, fmt.Sprint("it cannot be read: ", p))
		}
	}()
	c := v.tx.Bucket(bucket).Cursor()
	for k, value := c.First(); k != nil; k, value = c.Next() {
		key = k
		if what := check(k, value); what != "" {
			v.problem(bucket, k, what)
		}
	}
}

func (v *rowChecker) problem(bucket, key []byte, what string) {
	v.report.add(string(bucket), fmt.Sprintf("%q", key), "%s", what)
}

// get returns a row of another bucket; ok is false if that bucket cannot be read.
func (v *rowChecker) get(bucket, key []byte) (value []byte, ok bool) {
	if v.broken[string(bucket)] {
		return nil, false
	}
	return v.tx.Bucket(bucket).Get(key), true
}

// lacks reports whether a bucket lacks a row.
func (v *rowChecker) lacks(bucket, key []byte) bool {
	value, ok := v.get(bucket, key)
	return ok && value == nil
}

const cannotBeRead = "the record cannot be read"

// split returns the account, or what else precedes, of a prefixed key.
func split(key []byte) (head, tail string, ok bool) {
	length, n := binary.Uvarint(key)
	if n <= 0 || length == 0 || length > uint64(len(key)-n) {
		return "", "", false
	}
	head, tail = record.CutPrefixed(key)
	return head, tail, true
}

const notAKey = "the key of the row is not one of an account and more"

// meta checks a row of meta. Those that it does not know are of others.
func (v *rowChecker) meta(k, value []byte) string {
	number := func() string {
		switch {
		case len(value) != 8:
			return "it is no number"
		case binary.BigEndian.Uint64(value) > v.tx.Bucket(bucketEvents).Sequence()+1:
			return "it is a number beyond the last one given"
		}
		return ""
	}
	switch string(k) {
	case string(keyRuns):
		if what := number(); what != "" || binary.BigEndian.Uint64(value)%runSize == 0 {
			return what
		}
		return "it is not where a run begins"
	case string(keyIDsGone), string(keyBodiesGone):
		return number()
	case string(keyMarks):
		return lengthOf(value, 8)
	case string(keyIDSecret):
		return lengthOf(value, len(v.secret))
	case string(keyCursors), string(keyRestored):
		return lengthOf(value, len(cursor.Key{}))
	case string(keyClock):
		if _, err := record.DecodeMark(value); err != nil {
			return cannotBeRead
		}
	case string(keySeal):
		if _, err := v.keys.Open(value, string(keySeal)); v.wrong(err) {
			return "it is no sealed secret: " + err.Error()
		}
	}
	return ""
}

func lengthOf(value []byte, want int) string {
	if len(value) != want {
		return fmt.Sprintf("it has %d bytes, and should have %d", len(value), want)
	}
	return ""
}

// wrong reports whether a secret is damaged: without keys, whether it has another form.
func (v *rowChecker) wrong(err error) bool {
	return err != nil && (v.keys != nil || !errors.Is(err, signing.ErrSealed))
}

func (v *rowChecker) key(hash, value []byte) string {
	var key apikeys.Key
	if len(hash) != len(key.Hash.Sum) {
		return "the key of the row is no hash"
	}
	if current, alias := record.DecodeAlias(value); alias {
		if len(current) != len(hash) {
			return cannotBeRead
		}
		target, ok := v.get(bucketKeys, current)
		if ok && (target == nil || record.DecodeKey(&key, current, target) != nil || !bytes.Equal(key.Previous.Sum[:], hash)) {
			return "it is a previous hash of no key"
		}
		return ""
	}
	if record.DecodeKey(&key, hash, value) != nil {
		return cannotBeRead
	}
	v.report.Keys++
	if found, ok := v.get(bucketKeyIDs, record.Prefixed(key.Account, key.ID)); ok && !bytes.Equal(found, hash) {
		return "key_ids does not have it under its account and id"
	}
	if !key.Previous.IsZero() && key.Previous != key.Hash {
		if found, _ := v.get(bucketKeys, key.Previous.Sum[:]); !bytes.Equal(found, record.EncodeAlias(key.Hash)) {
			return "its previous hash does not lead to it"
		}
	}
	if expiry := apikeys.ExpiryOf(&key); !expiry.At.IsZero() && v.lacks(bucketExpiry, expiryRow(expiry)) {
		return "keys_expiring does not have it"
	}
	return ""
}

func (v *rowChecker) keyID(k, hash []byte) string {
	account, id, ok := split(k)
	if !ok {
		return notAKey
	}
	var key apikeys.Key
	value, ok := v.get(bucketKeys, hash)
	switch {
	case !ok:
		return ""
	case value == nil:
		return "there is no key of that hash"
	case record.DecodeKey(&key, hash, value) == nil && (key.Account != account || key.ID != id):
		return "the key of that hash has another account or id"
	}
	return ""
}

func (v *rowChecker) keyUses(k, value []byte) string {
	if v.lacks(bucketKeyIDs, k) {
		return "there is no such key"
	}
	return lengthOf(value, len(new(record.Uses).Encode()))
}

func (v *rowChecker) expiry(k, _ []byte) string {
	account, id, ok := bytes.Cut(k[min(8, len(k)):], []byte{0})
	if !ok {
		return "the key of the row is not one of a time, an account and an id"
	}
	hash, ok := v.get(bucketKeyIDs, record.Prefixed(string(account), string(id)))
	if !ok {
		return ""
	}
	var key apikeys.Key
	value, ok := v.get(bucketKeys, hash)
	if ok && (record.DecodeKey(&key, hash, value) != nil || !bytes.Equal(expiryRow(apikeys.ExpiryOf(&key)), k)) {
		return "there is no key that expires then"
	}
	return ""
}

func (v *rowChecker) webhook(k, value []byte) string {
	account, id, ok := split(k)
	if !ok {
		return notAKey
	}
	v.report.Webhooks++
	w, err := record.InspectWebhook(account, id, value, v.keys)
	switch {
	case err != nil && w.ID == "":
		return cannotBeRead
	case v.wrong(err):
		return "a signing secret cannot be opened: " + err.Error()
	}
	if found, ok := v.get(bucketWebhookIDs, []byte(id)); ok && string(found) != account {
		return "webhook_ids does not have it"
	}
	for _, list := range webhookLists {
		if list.has(&w) && v.lacks(list.bucket, []byte(id)) {
			return string(list.bucket) + " does not have it"
		}
	}
	return ""
}

func (v *rowChecker) webhookID(id, account []byte) string {
	if v.lacks(bucketWebhooks, record.Prefixed(string(account), string(id))) {
		return "there is no such webhook"
	}
	return ""
}

// listed checks a row of a list of webhooks.
func (v *rowChecker) listed(id, account []byte, has func(*webhooks.Webhook) bool) string {
	value, ok := v.get(bucketWebhooks, record.Prefixed(string(account), string(id)))
	if !ok {
		return ""
	}
	if value == nil {
		return "there is no such webhook"
	}
	if w, _ := record.InspectWebhook(string(account), string(id), value, v.keys); w.ID != "" && !has(&w) {
		return "that webhook does not belong there"
	}
	return ""
}

func (v *rowChecker) recovery(id, value []byte) string {
	r, err := record.DecodeRecovery(string(id), value)
	if err != nil {
		return cannotBeRead
	}
	if open, ok := v.get(bucketOpenRecoveries, []byte(r.WebhookID)); ok && !r.Done && record.DecodeID(open) != r.ID {
		return "it is not done, and open_recoveries does not have it"
	}
	if v.lacks(bucketRecoveryTimes, recoveryTime(&r)) {
		return "recovery_times does not have it"
	}
	return ""
}

func (v *rowChecker) recoveryTime(k, value []byte) string {
	if len(k) < 9 || len(value) > 0 {
		return "it is not a time and a recovery"
	}
	if v.lacks(bucketRecoveries, k[8:]) {
		return "there is no such recovery"
	}
	return ""
}

// webhookRecoveries checks a row whose recoveries may be purged.
func (v *rowChecker) webhookRecoveries(webhook, value []byte) string {
	if ids, err := record.DecodeIDs(value); err != nil || len(ids) > webhooks.MaxRecoveries {
		return cannotBeRead
	}
	if v.lacks(bucketWebhookIDs, webhook) {
		return "there is no such webhook"
	}
	return ""
}

func (v *rowChecker) deletedWebhook(webhook, account []byte) string {
	switch found, ok := v.get(bucketWebhookIDs, webhook); {
	case len(account) == 0:
		return cannotBeRead
	case ok && found != nil:
		return "there is such a webhook"
	}
	return ""
}

func (v *rowChecker) openRecovery(webhook, value []byte) string {
	id := record.DecodeID(value)
	found, ok := v.get(bucketRecoveries, []byte(id))
	if !ok {
		return ""
	}
	if r, err := record.DecodeRecovery(id, found); found == nil || err == nil && (r.Done || r.WebhookID != string(webhook)) {
		return "there is no such recovery, or it is done"
	}
	return ""
}

func (v *rowChecker) request(k, value []byte) string {
	if len(k) == 0 || k[0] != keyRequest[0] && k[0] != webhookRequest[0] {
		return "the key of the row is not one of a request"
	}
	account, _, ok := split(k[1:])
	if !ok {
		return notAKey
	}
	r, err := record.DecodeRequest(value)
	switch {
	case err != nil:
		return cannotBeRead
	case !v.isErasing(account) && v.lacks(bucketRequestTimes, requestTime(r.At, k)):
		return "request_times does not have it"
	}
	return ""
}

// requestTime checks a row whose request may have been made again since, or be forgotten.
func (v *rowChecker) requestTime(k, value []byte) string {
	if len(k) < 10 || len(value) > 0 {
		return "it is not a time and a request"
	}
	if _, _, ok := split(k[9:]); !ok {
		return notAKey
	}
	return ""
}

func (v *rowChecker) alert(k, value []byte) string {
	if _, metric, ok := split(k); !ok || metric == "" {
		return notAKey
	}
	if len(value) == 0 || value[0] != record.Version {
		return cannotBeRead
	}
	return ""
}

func (v *rowChecker) dueAlert(k, _ []byte) string {
	if _, metric, ok := split(k); !ok || metric != string(webhooks.MetricBalance) {
		return "it is not the alert of an account's balance"
	}
	return ""
}

func (v *rowChecker) dedupKey(k, _ []byte) string {
	if _, _, ok := split(k[min(8, len(k)):]); !ok {
		return notAKey
	}
	return ""
}

func (v *rowChecker) erasure(_, value []byte) string {
	if len(value) == 0 || value[0] != record.Version {
		return cannotBeRead
	}
	return ""
}

func (v *rowChecker) notice(k, value []byte) string {
	if len(k) != 8 {
		return "the key of the row is no number"
	}
	entry, err := record.DecodeNoticeEntry(value)
	if err != nil {
		return cannotBeRead
	}
	n, number, err := record.DecodeNotice(entry.Account, entry.ID, entry.Notice)
	switch {
	case err != nil || entry.ID == "":
		return cannotBeRead
	case number != noticeNumber(k):
		return "it is of another number"
	case entry.Before >= number || entry.BeforeOfTarget >= number:
		return "it comes before the one before it"
	}
	if v.isErasing(entry.Account) {
		return ""
	}
	for _, key := range [][]byte{record.NoticesOf(entry.Account), record.NoticesOfTarget(entry.Account, n.Target)} {
		head, ok := v.get(bucketNoticeHeads, key)
		if last, greatest := record.DecodeNoticeHead(head); ok && (last < number || greatest < entry.ID) {
			return "audit_heads does not lead to it"
		}
	}
	if n.Routine() && v.lacks(bucketNoticesRoutine, routineNotice(entry.Account, number)) {
		return "audit_routine does not have it"
	}
	if what := v.leadsToNotice(entry.Before, record.NoticesOf(entry.Account)); what != "" {
		return what
	}
	return v.leadsToNotice(entry.BeforeOfTarget, record.NoticesOfTarget(entry.Account, n.Target))
}

func (v *rowChecker) noticeHead(k, value []byte) string {
	if account, _, ok := split(k); ok && v.isErasing(account) {
		return ""
	}
	number, _ := record.DecodeNoticeHead(value)
	if number == 0 || v.lacks(bucketNotices, record.NumberKey(number)) {
		return "there is no notice of that number"
	}
	return v.leadsToNotice(number, k)
}

// isErasing reports whether an account is being erased, or that cannot be read: then not all that
// led to its rows is left.
func (v *rowChecker) isErasing(account string) bool { return !v.lacks(bucketErasures, []byte(account)) }

func (v *rowChecker) noticePending(k, _ []byte) string {
	account, number, ok := cutPendingNotice(k)
	if !ok {
		return "the key of the row is no account and number"
	}
	value, ok := v.get(bucketNotices, record.NumberKey(number))
	if !ok {
		return ""
	}
	if entry, err := record.DecodeNoticeEntry(value); value == nil || err == nil && entry.Account != account {
		return "there is no notice of that number of the account"
	}
	return ""
}

func (v *rowChecker) noticeRoutine(k, value []byte) string {
	account, tail, ok := split(k)
	if !ok || len(tail) != 8 {
		return "the key of the row is no account and number"
	}
	if v.isErasing(account) {
		return ""
	}
	number := noticeNumber([]byte(tail))
	if number == 0 {
		counted := uint64(0)
		c := v.tx.Bucket(bucketNoticesRoutine).Cursor()
		for k, _ := c.Seek(routineNotice(account, 1)); isRoutineOf(k, account); k, _ = c.Next() {
			counted++
		}
		if noticeNumber(value) != counted {
			return fmt.Sprintf("it counts %d notices instead of %d", noticeNumber(value), counted)
		}
		return ""
	}
	entry, ok := v.get(bucketNotices, record.NumberKey(number))
	if n, err := record.DecodeNoticeEntry(entry); ok && (entry == nil || err == nil && n.Account != account) {
		return "there is no notice of that number of the account"
	}
	if len(value) != 16 {
		return cannotBeRead
	}
	return ""
}

// leadsToNotice checks that the notice of a number, if it is there, is of the account or target
// that the head is of.
func (v *rowChecker) leadsToNotice(number uint64, head []byte) string {
	value, ok := v.get(bucketNotices, record.NumberKey(number))
	if !ok || value == nil {
		return ""
	}
	entry, err := record.DecodeNoticeEntry(value)
	if err != nil {
		return "" // it says so itself
	}
	n, _, err := record.DecodeNotice(entry.Account, entry.ID, entry.Notice)
	if err == nil && !bytes.Equal(head, record.NoticesOf(n.Account)) && !bytes.Equal(head, record.NoticesOfTarget(n.Account, n.Target)) {
		return "it leads to a notice of another"
	}
	return ""
}
