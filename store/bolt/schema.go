package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Short names for the names in package schema: buckets, and keys in the bucket meta.
var (
	bucketMeta              = schema.Meta
	bucketKeys              = schema.Keys
	bucketAccounts          = schema.Accounts
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
	bucketAudit             = schema.Audit
	bucketAuditPending      = schema.AuditPending
	bucketAuditRoutine      = schema.AuditRoutine
	bucketSpare             = schema.Spare

	keyDataKey  = schema.MetaDataKey
	keySeal     = schema.MetaSealed
	keySchema   = schema.MetaSchema
	keyClock    = schema.MetaClock
	keyMarks    = schema.MetaMarks
	keyCursors  = schema.MetaCursors
	keyRestored = schema.MetaRestored
	keyLeft     = schema.MetaLeft
	keyScan     = schema.MetaScan
)

// initialize creates the buckets of a new file. It returns an error for a file that another
// program made or that has another schema.
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

// create creates the file unless it exists. It prepares a temporary file and links it to path when
// it is complete: a crash leaves at most a temporary file, which is never opened.
func create(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening the file reports errors
	}
	dir, name := filepath.Split(path)
	temporary, err := os.CreateTemp(dir, "."+name+".*")
	if err != nil {
		return nil // opening the file reports a better error
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	if err := temporary.Close(); err != nil {
		return err
	}
	db, _, err := pagefile.Open(temporary.Name(), time.Now().Add(pagefile.DefaultWait), &bbolt.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(schema.Create), db.Close()); err != nil {
		return err
	}
	// If the link fails, another process has created the file, or bbolt will create it.
	if os.Link(temporary.Name(), path) == nil {
		files.SyncDir(filepath.Dir(path))
	}
	return nil
}
