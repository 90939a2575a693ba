// Package schema names what is in a file: its buckets, the rows of the bucket meta, and the version of
// the layout, which docs/format.md describes.
package schema

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
)

// Version is the version of the layout.
const Version = 1

// The buckets. Rows that are written for each event or attempt have keys that only grow,
// because random keys in a large tree cost a page each. Rows that come by the hundred are
// packed, see record.Pack. "prefixed": preceded by its length, since more follows.
var (
	Meta = []byte("meta") // "format" → Version

	Keys    = []byte("keys")          // hash → key record, or an alias for a previous hash
	KeyIDs  = []byte("key_ids")       // prefixed account, id → hash
	KeyUses = []byte("key_uses")      // prefixed account, id → times
	Expiry  = []byte("keys_expiring") // when a key expires, account, 0, id → nothing

	Webhooks   = []byte("webhooks")         // prefixed account, id → webhook record
	WebhookIDs = []byte("webhook_ids")      // id → account
	Deleted    = []byte("webhooks_deleted") // id → account, of those whose pending deliveries may still have rows

	Failing = []byte("webhooks_failing") // id → account, of those that are active, not on hold, and have FailedAgain set
	Held    = []byte("webhooks_held")    // id → account, of those that are on hold
	Off     = []byte("webhooks_off")     // id → account, of those that are not active

	EventIDs = []byte("event_ids") // number of the last event of a run, last key and number of the row → numbers of events by the keys of their IDs

	Events  = []byte("events")               // last number of a segment → its records, see record.Segment; the same, "b" → the bodies of its events; dividers → nothing
	Fresh   = []byte("pending_as_published") // the same → which of its deliveries are pending as they were published
	Skipped = []byte("skipped")              // the same → which of its deliveries are skipped
	Pending = []byte("pending")              // number of a delivery that is pending otherwise → pending record
	Runs    = []byte("delivery_runs")        // first number of a run, webhook id → numbers of its deliveries in that run
	Failed  = []byte("failed_deliveries")    // first of MaxFailed numbers, webhook id → which of its deliveries may have failed

	FirstAttempts = []byte("first_attempts") // last number of a segment, least number in the pack → first attempts at its deliveries
	LastAttempts  = []byte("last_attempts")  // as in Attempts, of the last ones, as long as they are small and few
	Attempts      = []byte("attempts")       // number of the delivery, number of the attempt (4 bytes) → attempt record, of all others

	Recoveries        = []byte("recoveries")         // id → recovery record
	OpenRecoveries    = []byte("open_recoveries")    // webhook id → id, of those that are not done
	RecoveryTimes     = []byte("recovery_times")     // when it was created, id → nothing
	WebhookRecoveries = []byte("webhook_recoveries") // webhook id → ids of its recoveries, in the order in which they were stored; some may be purged

	Requests     = []byte("requests")      // kind, prefixed account, name → request record
	RequestTimes = []byte("request_times") // time, the same → nothing

	Alerts    = []byte("alerts")     // prefixed account, metric → alert record
	DueAlerts = []byte("due_alerts") // the same, of those that are due → nothing
	DedupKeys = []byte("dedup_keys") // until (8 bytes), prefixed account, key → nothing

	EventRuns    = []byte("event_runs")    // first number of a run, prefixed account, type → numbers of its events in that run
	Erasures     = []byte("erasures")      // account that is being erased → erasure record
	Audit        = []byte("audit_log")     // number of an audit entry → its entry
	AuditHeads   = []byte("audit_heads")   // see record.AuditEntryHead → number of the last audit entry of the account or target
	AuditPending = []byte("audit_pending") // account, 0, number, of those that wait to be taken → what does not matter

	// account, number of a routine audit entry → links; and account, 0 → how many there are.
	AuditRoutine = []byte("audit_routine")

	Spare = []byte("spare_pages") // number, pages → a bucket with one value; made when it is needed
)

// The rows of the bucket meta.
var (
	MetaSealed     = []byte("seal")             // a secret sealed as all those of the webhooks are; none in a file never sealed
	MetaSchema     = []byte("format")           // Version
	MetaUnreleased = []byte("schema")           // the schema of a file that was written by a build from before 0.1.0
	MetaClock      = []byte("clock")            // clock record
	MetaMarks      = []byte("marks")            // how often the clock was marked
	MetaCursors    = []byte("cursors")          // the key that hides the numbers of deliveries
	MetaRestored   = []byte("restored")         // what makes that key another one, of a file that was restored
	MetaRuns       = []byte("runs")             // the first number that no run is made of yet
	MetaEventRuns  = []byte("event_runs")       // the first number that EventRuns has nothing of yet
	MetaIDsGone    = []byte("event_ids_purged") // the first number whose event id is not purged

	MetaIDSecret   = []byte("event_ids_secret") // the secret that keys of IDs are hashed with
	MetaBodiesGone = []byte("bodies_purged")    // the first number whose body is not purged

	MetaLeft     = []byte("left")      // where the file was left for
	MetaPieces   = []byte("pieces")    // where the order of publication begins again
	MetaFileScan = []byte("file_scan") // the state of the scan for expiring files
)

// Buckets are all buckets of a new file.
var Buckets = [][]byte{
	Meta, Keys, KeyIDs, KeyUses, Expiry, Webhooks, WebhookIDs, Deleted, Failing, Held, Off,
	EventIDs, Events, Fresh, Skipped, Pending, Runs, Failed, FirstAttempts, LastAttempts, Attempts,
	Recoveries, OpenRecoveries, RecoveryTimes, WebhookRecoveries, Requests, RequestTimes, Alerts, DueAlerts, DedupKeys,
	EventRuns, Erasures,
	Audit, AuditHeads, AuditPending, AuditRoutine,
}

// Check returns an error for a file of another program or of another version of the layout.
func Check(tx *bbolt.Tx) error {
	meta := tx.Bucket(Meta)
	switch {
	case meta == nil:
		return pagefile.ErrForeign
	case meta.Get(MetaUnreleased) != nil:
		return fmt.Errorf("%w: it was written by an unreleased build, from before version 0.1.0, and no release reads it. Begin with a new file", pagefile.ErrSchema)
	case meta.Get(MetaSchema) == nil && tx.Bucket(KeyIDs) == nil:
		return pagefile.ErrForeign
	}
	switch version := Of(tx); {
	case version == 0:
		return pagefile.Damaged("it has no schema")
	case version != Version:
		return fmt.Errorf("%w: schema %d, and this version of the library reads schema %d alone. "+
			"The version that wrote the file reads it, and newer ones do: use one of them", pagefile.ErrSchema, version, Version)
	}
	return nil
}

// Of returns the version of the layout of a file, or 0 if it has none.
func Of(tx *bbolt.Tx) uint64 {
	if meta := tx.Bucket(Meta); meta != nil {
		if value := meta.Get(MetaSchema); len(value) == 8 {
			return binary.BigEndian.Uint64(value)
		}
	}
	return 0
}

// Create makes the buckets of a new file.
func Create(tx *bbolt.Tx) error {
	for _, name := range Buckets {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never returns an error
	if err := tx.Bucket(Meta).Put(MetaIDSecret, secret); err != nil {
		return err
	}
	return tx.Bucket(Meta).Put(MetaSchema, binary.BigEndian.AppendUint64(nil, Version))
}
