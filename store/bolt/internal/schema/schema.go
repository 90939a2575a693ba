// Package schema names the contents of a file: its buckets, the rows of the bucket meta, and the
// version of the layout. docs/format.md describes the encoding of rows.
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

// The buckets. Rows written for each event or attempt have ascending keys, because each random key
// in a large tree costs a page. Rows that are written by the hundred are packed, see record.Pack.
// "prefixed" marks a part of a key that is preceded by its length, because more parts follow.
var (
	Meta = []byte("meta") // "format" → Version

	Keys    = []byte("keys")          // hash → key record, or an alias for a previous hash
	KeyUses = []byte("key_uses")      // as in Accounts → times, activity
	Expiry  = []byte("keys_expiring") // expiry, account, 0, id → nothing

	Accounts = []byte("accounts") // prefixed account, kind, id → hash of the key, number of the last audit entry; see record.AccountRow

	Webhooks   = []byte("webhooks")         // prefixed account, id → webhook record
	WebhookIDs = []byte("webhook_ids")      // id → account
	Deleted    = []byte("webhooks_deleted") // id → account; rows of its pending deliveries may remain

	Failing = []byte("webhooks_failing") // id → account; active, not on hold, FailedAgain set
	Held    = []byte("webhooks_held")    // id → account; on hold
	Off     = []byte("webhooks_off")     // id → account; not active

	EventIDs = []byte("event_ids") // number of the last event of a run, last key and number of the row → numbers of events by the keys of their IDs

	Events  = []byte("events")               // last number of a segment → its records, see record.Segment; with "b" → the bodies of its events; dividers → nothing
	Fresh   = []byte("pending_as_published") // last number of a segment → its deliveries that are pending as published
	Skipped = []byte("skipped")              // last number of a segment → its skipped deliveries
	Pending = []byte("pending")              // number of a pending delivery that is not in Fresh → pending record
	Runs    = []byte("delivery_runs")        // first number of a run, webhook id → numbers of its deliveries in that run
	Failed  = []byte("failed_deliveries")    // first of MaxFailed numbers, webhook id → its deliveries that may have failed

	FirstAttempts = []byte("first_attempts") // last number of a segment, least number in the pack → first attempts at its deliveries
	LastAttempts  = []byte("last_attempts")  // as in Attempts: the newest attempts, if few and small
	Attempts      = []byte("attempts")       // number of the delivery, number of the attempt (4 bytes) → attempt record; all other attempts

	Recoveries        = []byte("recoveries")         // id → recovery record
	OpenRecoveries    = []byte("open_recoveries")    // webhook id → id of its unfinished recovery
	RecoveryTimes     = []byte("recovery_times")     // creation time, id → nothing
	WebhookRecoveries = []byte("webhook_recoveries") // webhook id → ids of its latest 100 recoveries in storage order; some may be purged

	Requests     = []byte("requests")      // kind, prefixed account, name → request record
	RequestTimes = []byte("request_times") // time, then as in Requests → nothing

	Alerts    = []byte("alerts")     // prefixed account, series → alert record
	DueAlerts = []byte("due_alerts") // as in Alerts; due alerts → nothing
	DedupKeys = []byte("dedup_keys") // expiry (8 bytes), prefixed account, key → nothing

	EventRuns    = []byte("event_runs")    // first number of a run, prefixed account, type → numbers of its events in that run
	Erasures     = []byte("erasures")      // account under erasure → erasure record
	Audit        = []byte("audit_log")     // number of an audit entry → entry
	AuditPending = []byte("audit_pending") // account, 0, number of a pending entry divided by 64 → a bit for each of 64 numbers

	// account, number of a routine entry → links; account, 0 → number of routine entries.
	AuditRoutine = []byte("audit_routine")

	Spare = []byte("spare_pages") // number of pages, unique number → a bucket with one value; created on demand
)

// The rows of the bucket meta.
var (
	MetaDataKey    = []byte("data_key")         // signing.DataKey that seals secrets, in sealed form; missing if secrets are plain
	MetaSealed     = []byte("seal")             // a secret sealed like the webhooks' secrets; missing unless all are sealed
	MetaSchema     = []byte("format")           // Version
	MetaUnreleased = []byte("schema")           // schema of a file from an unreleased build, before 0.1.0
	MetaClock      = []byte("clock")            // clock record
	MetaMarks      = []byte("marks")            // number of marks of the clock
	MetaCursors    = []byte("cursors")          // key that hides delivery numbers
	MetaRestored   = []byte("restored")         // salt that changes the cursor key of a restored file
	MetaRuns       = []byte("runs")             // first number without a run in Runs
	MetaEventRuns  = []byte("event_runs")       // first number without a run in EventRuns
	MetaIDsGone    = []byte("event_ids_purged") // first number whose event ID is not purged

	MetaIDSecret   = []byte("event_ids_secret") // secret for hashing IDs into keys
	MetaBodiesGone = []byte("bodies_purged")    // first number whose body is not purged

	MetaLeft   = []byte("left")   // place to which the data of the file was moved
	MetaPieces = []byte("pieces") // number of each piece's first event, see package eventlog
	MetaScan   = []byte("scan")   // see driver.AlertStore
)

// Buckets are all buckets of a new file.
var Buckets = [][]byte{
	Meta, Keys, Accounts, KeyUses, Expiry, Webhooks, WebhookIDs, Deleted, Failing, Held, Off,
	EventIDs, Events, Fresh, Skipped, Pending, Runs, Failed, FirstAttempts, LastAttempts, Attempts,
	Recoveries, OpenRecoveries, RecoveryTimes, WebhookRecoveries, Requests, RequestTimes, Alerts, DueAlerts, DedupKeys,
	EventRuns, Erasures,
	Audit, AuditPending, AuditRoutine,
}

// Check returns an error if another program made the file, or if its layout has another version.
func Check(tx *bbolt.Tx) error {
	meta := tx.Bucket(Meta)
	switch {
	case meta == nil:
		return pagefile.ErrForeign
	case meta.Get(MetaUnreleased) != nil:
		return fmt.Errorf("%w: written by an unreleased build from before 0.1.0, which no release can read; start with a new file", pagefile.ErrSchema)
	case meta.Get(MetaSchema) == nil && tx.Bucket(Accounts) == nil:
		return pagefile.ErrForeign
	}
	switch version := Of(tx); {
	case version == 0:
		return pagefile.Damaged("it has no schema")
	case version != Version:
		return fmt.Errorf("%w: the file has schema %d, but this version of the library reads only schema %d; "+
			"use the version that wrote the file, or a newer one", pagefile.ErrSchema, version, Version)
	}
	return nil
}

// Of returns the version of a file's layout, or 0 if it has none.
func Of(tx *bbolt.Tx) uint64 {
	if meta := tx.Bucket(Meta); meta != nil {
		if value := meta.Get(MetaSchema); len(value) == 8 {
			return binary.BigEndian.Uint64(value)
		}
	}
	return 0
}

// create makes the buckets of a new file.
func create(tx *bbolt.Tx) error {
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
