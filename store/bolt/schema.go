package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// ErrSchema is wrapped by the error of [Open] for a bbolt file that this version
// of the package cannot use.
var ErrSchema = errors.New("unknown schema")

// schemaVersion is the version of the layout below. Version 1 lacked some buckets,
// and its records may be shorter: what is missing of them is zero.
const schemaVersion = 2

// The buckets. Whatever is written for each event or attempt has keys that only
// grow, because random keys in a large tree cost a page each; only what is
// written at the pace of people is ordered otherwise. An account or id that more
// follows is preceded by its length, "prefixed".
var (
	bucketMeta = []byte("meta") // "schema" → version

	bucketKeys    = []byte("keys")     // hash → key record, or an alias for a previous hash
	bucketKeyIDs  = []byte("key_ids")  // prefixed account, id → hash
	bucketKeyUses = []byte("key_uses") // prefixed account, id → times

	bucketWebhooks   = []byte("webhooks")    // prefixed account, id → webhook record
	bucketWebhookIDs = []byte("webhook_ids") // id → account

	bucketEvents   = []byte("events")    // seq → event record
	bucketBodies   = []byte("bodies")    // seq → the event's body
	bucketEventIDs = []byte("event_ids") // prefixed id, account → seq
	bucketOwed     = []byte("owed")      // seq, webhook id → owed record
	bucketSkipped  = []byte("skipped")   // seq, webhook id → nothing
	bucketAttempts = []byte("attempts")  // seq, prefixed webhook id, number → attempt record
	bucketRuns     = []byte("runs")      // first seq of a run, webhook id → its seqs in that run

	bucketRecoveries     = []byte("recoveries")      // id → recovery record
	bucketOpenRecoveries = []byte("open_recoveries") // webhook id → id, of those that are not done

	bucketRequests     = []byte("requests")      // kind, prefixed account, name → request record
	bucketRequestTimes = []byte("request_times") // time, the same → nothing

	bucketAlerts    = []byte("alerts")     // prefixed account, metric → alert record
	bucketDueAlerts = []byte("due_alerts") // the same, of those that are due → nothing
	bucketNotices   = []byte("notices")    // until (8 bytes), prefixed account, key → nothing

	keySeal    = []byte("seal") // in meta: a secret sealed as all those of the webhooks are; none in a file never sealed
	keySchema  = []byte("schema")
	keyCursors = []byte("cursors")          // in meta: the key that hides the numbers of events
	keyRuns    = []byte("runs")             // in meta: the first seq that no run is made of yet
	keyIDsGone = []byte("event_ids_purged") // in meta: the first seq whose event id is not purged
)

var buckets = [][]byte{
	bucketMeta, bucketKeys, bucketKeyIDs, bucketKeyUses, bucketWebhooks, bucketWebhookIDs,
	bucketEvents, bucketBodies, bucketEventIDs, bucketOwed, bucketSkipped, bucketAttempts, bucketRuns,
	bucketRecoveries, bucketOpenRecoveries, bucketRequests, bucketRequestTimes, bucketAlerts, bucketDueAlerts, bucketNotices,
}

// checkSchema creates the buckets of a new file, adds to an older one those that it
// lacks, and refuses a file that is not ours, or newer than this program.
func checkSchema(db *bbolt.DB) error {
	var version uint64
	var ours, empty bool
	err := db.View(func(tx *bbolt.Tx) error {
		first, _ := tx.Cursor().First()
		empty = first == nil
		if meta := tx.Bucket(bucketMeta); meta != nil {
			if v := meta.Get(keySchema); len(v) == 8 {
				version, ours = binary.BigEndian.Uint64(v), true
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case empty:
		return db.Update(createSchema)
	case !ours:
		return fmt.Errorf("%w: a bbolt file of something else", ErrSchema)
	case version > schemaVersion:
		return fmt.Errorf("%w: version %d, written by a newer version of this library; this one knows up to %d",
			ErrSchema, version, schemaVersion)
	case version < schemaVersion:
		return db.Update(createSchema)
	}
	return nil
}

func createSchema(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketMeta).Put(keySchema, binary.BigEndian.AppendUint64(nil, schemaVersion))
}
