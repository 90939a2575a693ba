package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// ErrSchema is wrapped by the error of [Open] for a bbolt file that this version
// of the package cannot use: it is of another program, of another schema, or damaged.
var ErrSchema = errors.New("unsupported file")

// schemaVersion is the version of the layout below, which docs/format.md draws.
const schemaVersion = 1

// The buckets. Rows that are written for each event or attempt have keys that only
// grow, because random keys in a large tree cost a page each; only rows that are
// written at the pace of people are ordered otherwise. Rows that come by the hundred are
// packed, see [record.Pack]. An account or id that more follows is preceded by its length,
// "prefixed".
var (
	bucketMeta = []byte("meta") // "format" → schemaVersion

	bucketKeys    = []byte("keys")          // hash → key record, or an alias for a previous hash
	bucketKeyIDs  = []byte("key_ids")       // prefixed account, id → hash
	bucketKeyUses = []byte("key_uses")      // prefixed account, id → times
	bucketExpiry  = []byte("keys_expiring") // when a key expires, account, 0, id → nothing

	bucketWebhooks   = []byte("webhooks")         // prefixed account, id → webhook record
	bucketWebhookIDs = []byte("webhook_ids")      // id → account
	bucketDeleted    = []byte("webhooks_deleted") // id → account, of those whose pending deliveries may still have rows, see [sweeper]

	bucketFailing = []byte("webhooks_failing") // id → account, of those that are active, not on hold, and have FailedAgain set
	bucketHeld    = []byte("webhooks_held")    // id → account, of those that are on hold
	bucketOff     = []byte("webhooks_off")     // id → account, of those that are not active

	bucketEventIDs = []byte("event_ids") // run, last key and number of the row → numbers of events by the keys of their IDs; run → its first and its last number, see [eventIDs]

	bucketEvents  = []byte("events")               // last number of a segment → its records, see [record.Segment]; the same, "b" → the bodies of its events; [firstDivider] to [lastDivider] → nothing
	bucketFresh   = []byte("pending_as_published") // the same → which of its deliveries are pending as they were published
	bucketSkipped = []byte("skipped")              // the same → which of its deliveries are skipped
	bucketPending = []byte("pending")              // number of a delivery that is pending otherwise → pending record
	bucketRuns    = []byte("delivery_runs")        // first number of a run, webhook id → numbers of its deliveries in that run
	bucketFailed  = []byte("failed_deliveries")    // first of MaxFailed numbers, webhook id → which of its deliveries may have failed, see [batch.noteFailed]

	bucketFirstAttempts = []byte("first_attempts") // last number of a segment, least number in the pack → first attempts at its deliveries
	bucketLastAttempts  = []byte("last_attempts")  // as in bucketAttempts, of the last ones, as long as they are small and few
	bucketAttempts      = []byte("attempts")       // number of the delivery, number of the attempt (4 bytes) → attempt record, of all others

	bucketRecoveries        = []byte("recoveries")         // id → recovery record
	bucketOpenRecoveries    = []byte("open_recoveries")    // webhook id → id, of those that are not done
	bucketRecoveryTimes     = []byte("recovery_times")     // when it was created, id → nothing
	bucketWebhookRecoveries = []byte("webhook_recoveries") // webhook id → ids of its recoveries, in the order in which they were stored; some may be purged

	bucketRequests     = []byte("requests")      // kind, prefixed account, name → request record
	bucketRequestTimes = []byte("request_times") // time, the same → nothing

	bucketAlerts    = []byte("alerts")     // prefixed account, metric → alert record
	bucketDueAlerts = []byte("due_alerts") // the same, of those that are due → nothing
	bucketDedupKeys = []byte("dedup_keys") // until (8 bytes), prefixed account, key → nothing

	bucketEventRuns      = []byte("event_runs")    // first number of a run, prefixed account, type → numbers of its events in that run
	bucketErasures       = []byte("erasures")      // account that is being erased → erasure record
	bucketNotices        = []byte("audit_log")     // number of a notice → its entry
	bucketNoticeHeads    = []byte("audit_heads")   // see [record.NoticeHead] → number of the last notice of the account or target
	bucketNoticesPending = []byte("audit_pending") // account, 0, number, of those that wait to be taken → what does not matter

	// account, number of a routine notice → see [routineLinks]; and account, 0 → how many there are.
	bucketNoticesRoutine = []byte("audit_routine")

	bucketSpare = []byte("spare_pages") // number, pages → a bucket with one value, see [spare]; made when it is needed

	keySeal       = []byte("seal")             // in meta: a secret sealed as all those of the webhooks are; none in a file never sealed
	keySchema     = []byte("format")           // in meta: schemaVersion
	keyUnreleased = []byte("schema")           // in meta: the schema of a file that was written by a build from before 0.1.0
	keyClock      = []byte("clock")            // in meta: clock record
	keyMarks      = []byte("marks")            // in meta: how often the clock was marked
	keyCursors    = []byte("cursors")          // in meta: the key that hides the numbers of deliveries
	keyRestored   = []byte("restored")         // in meta: what makes that key another one, of a file that was restored
	keyRuns       = []byte("runs")             // in meta: the first number that no run is made of yet
	keyEventRuns  = []byte("event_runs")       // in meta: the first number that bucketEventRuns has nothing of yet
	keyIDsGone    = []byte("event_ids_purged") // in meta: the first number whose event id is not purged

	keyIDSecret   = []byte("event_ids_secret") // in meta: see [idSecret]
	keyBodiesGone = []byte("bodies_purged")    // in meta: the first number whose body is not purged

	keyLeft     = []byte("left")      // in meta: where the file was left for, see [departure]
	keyPieces   = []byte("pieces")    // in meta: where the order of publication begins again, see [pieces]
	keyFileScan = []byte("file_scan") // in meta: the state of the scan for expiring files
)

var buckets = [][]byte{
	bucketMeta, bucketKeys, bucketKeyIDs, bucketKeyUses, bucketExpiry, bucketWebhooks, bucketWebhookIDs, bucketDeleted, bucketFailing, bucketHeld, bucketOff,
	bucketEventIDs, bucketEvents, bucketFresh, bucketSkipped, bucketPending, bucketRuns, bucketFailed, bucketFirstAttempts, bucketLastAttempts, bucketAttempts,
	bucketRecoveries, bucketOpenRecoveries, bucketRecoveryTimes, bucketWebhookRecoveries, bucketRequests, bucketRequestTimes, bucketAlerts, bucketDueAlerts, bucketDedupKeys,
	bucketEventRuns, bucketErasures,
	bucketNotices, bucketNoticeHeads, bucketNoticesPending, bucketNoticesRoutine,
}

// initialize creates the buckets of a new file, and refuses one that is not ours, or of another schema.
func initialize(db *bbolt.DB) error {
	empty := false
	err := db.View(func(tx *bbolt.Tx) error {
		first, _ := tx.Cursor().First()
		if empty = first == nil; empty {
			return nil
		}
		if err := checkSchema(tx); err != nil {
			return err
		}
		for _, name := range buckets {
			if tx.Bucket(name) == nil {
				return errDamaged(fmt.Sprintf("the bucket %s is missing", name))
			}
		}
		return nil
	})
	if err != nil || !empty {
		return err
	}
	return db.Update(createSchema)
}

// checkSchema refuses a file that is not ours, or of a schema that this version does not read.
func checkSchema(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	switch {
	case meta == nil:
		return errForeign
	case meta.Get(keyUnreleased) != nil:
		return fmt.Errorf("%w: it was written by an unreleased build, from before version 0.1.0, and no release reads it. Begin with a new file", ErrSchema)
	case meta.Get(keySchema) == nil && tx.Bucket(bucketKeyIDs) == nil:
		return errForeign
	}
	switch version := schemaOf(tx); {
	case version == 0:
		return errDamaged("it has no schema")
	case version != schemaVersion:
		return fmt.Errorf("%w: schema %d, and this version of the library reads schema %d alone. "+
			"The version that wrote the file reads it, and newer ones do: use one of them", ErrSchema, version, schemaVersion)
	}
	return nil
}

// schemaOf returns the schema of a file, or 0 if it has none.
func schemaOf(tx *bbolt.Tx) uint64 {
	if meta := tx.Bucket(bucketMeta); meta != nil {
		if value := meta.Get(keySchema); len(value) == 8 {
			return binary.BigEndian.Uint64(value)
		}
	}
	return 0
}

func createSchema(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketMeta).Put(keySchema, binary.BigEndian.AppendUint64(nil, schemaVersion))
}
