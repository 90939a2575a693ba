package bolt

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Short names for the buckets and the rows of the bucket meta, see package schema.
var (
	bucketMeta              = schema.Meta
	bucketKeys              = schema.Keys
	bucketKeyIDs            = schema.KeyIDs
	bucketKeyUses           = schema.KeyUses
	bucketExpiry            = schema.Expiry
	bucketWebhooks          = schema.Webhooks
	bucketWebhookIDs        = schema.WebhookIDs
	bucketDeleted           = schema.Deleted
	bucketFailing           = schema.Failing
	bucketHeld              = schema.Held
	bucketOff               = schema.Off
	bucketEvents            = schema.Events
	bucketFresh             = schema.Fresh
	bucketSkipped           = schema.Skipped
	bucketPending           = schema.Pending
	bucketFailed            = schema.Failed
	bucketFirstAttempts     = schema.FirstAttempts
	bucketLastAttempts      = schema.LastAttempts
	bucketAttempts          = schema.Attempts
	bucketRecoveries        = schema.Recoveries
	bucketOpenRecoveries    = schema.OpenRecoveries
	bucketRecoveryTimes     = schema.RecoveryTimes
	bucketWebhookRecoveries = schema.WebhookRecoveries
	bucketRequests          = schema.Requests
	bucketRequestTimes      = schema.RequestTimes
	bucketAlerts            = schema.Alerts
	bucketDueAlerts         = schema.DueAlerts
	bucketDedupKeys         = schema.DedupKeys
	bucketErasures          = schema.Erasures
	bucketNotices           = schema.Notices
	bucketNoticeHeads       = schema.NoticeHeads
	bucketNoticesPending    = schema.NoticesPending
	bucketNoticesRoutine    = schema.NoticesRoutine
	bucketSpare             = schema.Spare

	keySeal     = schema.MetaSealed
	keySchema   = schema.MetaSchema
	keyClock    = schema.MetaClock
	keyMarks    = schema.MetaMarks
	keyCursors  = schema.MetaCursors
	keyRestored = schema.MetaRestored
	keyLeft     = schema.MetaLeft
	keyFileScan = schema.MetaFileScan
)

// initialize creates the buckets of a new file, and refuses a file of another program or another schema.
func initialize(db *bbolt.DB) error {
	empty := false
	err := db.View(func(tx *bbolt.Tx) error {
		first, _ := tx.Cursor().First()
		if empty = first == nil; empty {
			return nil
		}
		if err := schema.Check(tx); err != nil {
			return err
		}
		for _, name := range schema.Buckets {
			if tx.Bucket(name) == nil {
				return pagefile.Damaged(fmt.Sprintf("the bucket %s is missing", name))
			}
		}
		return nil
	})
	if err != nil || !empty {
		return err
	}
	return db.Update(schema.Create)
}
