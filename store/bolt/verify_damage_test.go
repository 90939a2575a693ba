package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// rich returns the path of a closed file with events for 100 webhooks; 170 events take two runs of
// numbers. Every bucket has rows, except buckets whose rows are short-lived.
func rich(t *testing.T, events int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rich")
	makeReleased(t, name)
	s, err := bolt.Open(name + ".db")
	must(t, err)
	defer func() { must(t, s.Close()) }()
	for i := range 100 {
		must(t, s.CreateWebhook(t.Context(), driver.Webhook{
			Account: "many", ID: fmt.Sprintf("wh_%03d", i), URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: i%10 > 0}, Held: i == 99, CreatedAt: time.Now(),
			Events: []driver.EventType{alerts.TypeBalanceLow},
		}, driver.CreateOptions{IdempotencyKey: fmt.Sprint(i), IdempotencyTTL: time.Hour}))
	}
	for i := range events {
		_, err := s.Enqueue(t.Context(), driver.EncodedEvent{ID: fmt.Sprint("event-", i), Account: "many", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte("{}")})
		must(t, err)
	}
	tasks, err := storetest.WorkerOf(s).Claim(t.Context(), 100)
	must(t, err)
	settlements := make([]storetest.Settlement, len(tasks))
	for i, task := range tasks {
		outcome := []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry}[i%3]
		settlements[i] = storetest.Settlement{Task: task, Effect: outcome, RetryAfter: time.Hour, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now(), Class: driver.ErrorClass("x")}}
	}
	_, err = storetest.WorkerOf(s).Settle(t.Context(), settlements)
	must(t, err)
	for more := true; more; {
		more, err = s.Purge(t.Context(), driver.Purge{Limit: 1000})
		must(t, err)
	}
	target := audit.Target{Kind: audit.TargetWebhook, ID: "wh_001"}
	_, err = s.AddAuditEntries(t.Context(), []audit.Entry{
		{ID: "aud_2", Account: "many", Action: audit.WebhookFailing, Target: target, Pending: true},
		{ID: "aud_1", Account: "many", Action: audit.WebhookRecovered, Target: target},
	})
	must(t, err)
	must(t, s.CreateRecovery(t.Context(), driver.Recovery{ID: "rec", Account: "many", WebhookID: "wh_001", CreatedAt: time.Now(), States: []driver.DeliveryState{driver.Dead}}, audit.Entry{}))
	return name + ".db"
}

// In a file with rows of all kinds, the test changes one row at a time. Verify must name the
// changed row.
func TestVerify_DamagedRow_IsNamed(t *testing.T) {
	t.Parallel()
	if testbubble.Raced {
		t.Skip("one goroutine, and six times as long under the race detector")
	}
	small, large := rich(t, 6), rich(t, 170)
	verify(t, small)
	verify(t, large)
	flip := func(value []byte) []byte { return append([]byte{value[0] ^ 0x40}, value[1:]...) }
	cut := func(value []byte) []byte { return value[:len(value)-1] }
	remove := func([]byte) []byte { return nil }
	for _, test := range []struct {
		bucket string
		prefix string // prefix of the row to change; see spoil
		change func(value []byte) []byte
		in     string // the bucket that Verify must name
		what   string
	}{
		{"keys", "", flip, "key", ""},
		{"keys", "key", remove, "accounts", "superfluous"},
		{"keys", "alias", remove, "keys", "missing"},
		{"accounts", "\x06acct_1k", remove, "accounts", "missing"},
		{"accounts", "\x06acct_1k", flip, "accounts", "differs from what keys"},
		{"accounts", "\x06acct_1k", func(value []byte) []byte { return value[:32] }, "audit_log", "no readable row requires it"},
		{"accounts", "\x06acct_1l", remove, "audit_log", "no readable row requires it"},
		{"accounts", "\x06acct_1l", cut, "accounts", "unreadable"},
		{"accounts", "\x06acct_1t", remove, "audit_log", "no readable row requires it"},
		{"accounts", "\x06acct_2l", func([]byte) []byte { return binary.BigEndian.AppendUint64(nil, 1) }, "audit_log", `required by accounts "\x06acct_2l"`},
		{"key_uses", "", cut, "key_uses", "unreadable record"},
		{"keys_expiring", "", remove, "keys_expiring", "missing"},
		{"keys_expiring", "move", nil, "keys_expiring", "superfluous"},
		{"webhooks", "", cut, "webhooks", "unreadable"},
		{"webhooks", "", remove, "webhook_ids", "superfluous"},
		{"webhooks", "secret", nil, "webhooks", "signing secret"},
		{"webhook_ids", "", remove, "webhook_ids", "missing"},
		{"webhook_ids", "", flip, "webhook_ids", "differs from what webhooks"},
		{"webhooks_failing", "", remove, "webhooks_failing", "missing"},
		{"webhooks_failing", "move", nil, "webhooks_failing", "superfluous"},
		{"webhooks_held", "", remove, "webhooks_held", "missing"},
		{"webhooks_held", "move", nil, "webhooks_held", "superfluous"},
		{"events", "", flip, "events", "unreadable"},
		{"events", "second", remove, "events", "no segment has these bodies"},
		{"events", "bodies", remove, "events", "bodies of the segment's events are missing"},
		{"events", "bodies", cut, "events", "bodies"},
		{"pending_as_published", "", flip, "pending_as_published", "unreadable"},
		{"pending_as_published", "", func(value []byte) []byte { return append(bytes.Clone(value), 0xff) }, "pending_as_published", "not deliveries"},
		{"pending_as_published", "move", nil, "pending_as_published", "no such segment"},
		{"skipped", "", flip, "skipped", "unreadable"},
		{"skipped", "move", nil, "skipped", "no such segment"},
		{"pending", "", flip, "pending", "unreadable"},
		{"pending", "move", nil, "pending", "no such delivery"},
		{"delivery_runs", "", flip, "delivery_runs", "unreadable"},
		{"delivery_runs", "", func(value []byte) []byte { return append(bytes.Clone(value), 1) }, "delivery_runs", "too much"},
		{"delivery_runs", "last", remove, "delivery_runs", "missing"},
		{"delivery_runs", "", remove, "delivery_runs", "missing"},
		{"delivery_runs", "all", remove, "delivery_runs", "missing"},
		{"event_runs", "", flip, "event_runs", "unreadable"},
		{"event_runs", "", remove, "event_runs", "missing"},
		{"event_runs", "all", remove, "event_runs", "missing"},
		{"pending_as_published", "last", func(value []byte) []byte { return append(value[:len(value)-1], 0xff) }, "skipped", "also in pending_as_published"},
		{"event_runs", "", func(value []byte) []byte { return append(bytes.Clone(value), 1) }, "event_runs", "too much"},
		{"event_runs", "last", remove, "event_runs", "missing"},
		{"event_runs", "move", nil, "event_runs", "too much"},
		{"failed_deliveries", "", flip, "failed_deliveries", "unreadable"},
		{"failed_deliveries", "all", remove, "failed_deliveries", "missing"},
		{"failed_deliveries", "last", func(value []byte) []byte { return append(bytes.Clone(value), 1, 1, 1, 1, 1) }, "failed_deliveries", "to this webhook"},
		{"first_attempts", "", flip, "first_attempts", "unreadable"},
		{"first_attempts", "move", nil, "first_attempts", ""},
		{"attempts", "", flip, "attempts", "unreadable"},
		{"attempts", "move", nil, "attempts", "no such delivery"},
		{"last_attempts", "", flip, "last_attempts", "unreadable"},
		{"recoveries", "", flip, "recoveries", "unreadable"},
		{"recoveries", "rec", remove, "open_recoveries", "superfluous"},
		{"open_recoveries", "", remove, "open_recoveries", "missing"},
		{"recovery_times", "", remove, "recovery_times", "missing"},
		{"recovery_times", "move", nil, "recovery_times", "superfluous"},
		{"webhook_recoveries", "", flip, "webhook_recoveries", "unreadable"},
		{"webhook_recoveries", "move", nil, "webhook_recoveries", "refers to webhook_ids"},
		{"requests", "", flip, "requests", "unreadable"},
		{"request_times", "", remove, "requests", "refers to request_times"},
		{"request_times", "", func(value []byte) []byte { return append(bytes.Clone(value), 1) }, "request_times", "want 0"},
		{"alerts", "", flip, "alerts", "unreadable"},
		{"due_alerts", "move", nil, "due_alerts", "malformed key"},
		{"dedup_keys", "another", nil, "dedup_keys", "malformed key"},
		{"audit_log", "", flip, "audit_log", "unreadable"},
		{"audit_log", "", remove, "audit_log", "missing"},
		{"audit_log", "last", func(value []byte) []byte { return bytes.Replace(value, []byte("aud_2"), []byte("aud_0"), 1) }, "audit_log", "not the latest entry"},
		{"audit_pending", "", flip, "audit_pending", "no audit entry"},
		{"audit_pending", "", cut, "audit_pending", "unreadable"},
		{"audit_pending", "move", nil, "audit_pending", "no audit entry"},
		{"audit_routine", "", flip, "audit_routine", "too much"},
		{"audit_routine", "last", cut, "audit_routine", "unreadable"},
		{"audit_routine", "last", remove, "audit_routine", "missing"},
		{"audit_routine", "move", nil, "audit_routine", ""},
		{"erasures", "another", nil, "erasures", "unreadable"},
		{"meta", "runs", flip, "meta", "number"},
		{"meta", "event_runs", flip, "meta", "number"},
		{"meta", "event_ids_secret", cut, "meta", "bytes"},
		{"meta", "cursors", cut, "meta", "bytes"},
		{"meta", "clock", flip, "meta", "unreadable"},
	} {
		path := filepath.Join(t.TempDir(), "damaged.db")
		whole := small
		if strings.HasSuffix(test.bucket, "_runs") || test.prefix == "all" || strings.HasSuffix(test.prefix, "runs") {
			whole = large
		}
		copyFile(t, whole, path)
		spoil(t, path, test.bucket, test.prefix, test.change)
		report, err := boltops.Verify(path, nil)
		must(t, err)
		named := false
		for _, p := range report.Problems {
			named = named || strings.Contains(p.Bucket, test.in) && strings.Contains(p.String(), test.what)
		}
		if !named || report.Err() == nil {
			t.Errorf("%s %s: not named: %v", test.bucket, test.prefix, report.Problems)
		}
	}
}

// spoil changes one row of a bucket. which selects the row by a name or a key prefix; if it is
// empty, spoil changes the first row.
func spoil(t *testing.T, path, bucket, which string, change func([]byte) []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	must(t, db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		c := b.Cursor()
		k, value := c.First()
		switch which {
		case "":
		case "move": // to a key that refers to no other row
			if k = bytes.Clone(k); k == nil {
				k = []byte("nowhere")
			}
			k[len(k)-1] ^= 0x7f
			k[0] ^= 0x7f
			return b.Put(k, bytes.Clone(value))
		case "key":
			for len(value) == 33 && value[0] == 0 {
				k, value = c.Next()
			}
		case "alias":
			for len(value) != 33 || value[0] != 0 {
				k, value = c.Next()
			}
		case "another": // another row
			return b.Put([]byte("x"), nil)
		case "all":
			return errors.Join(tx.DeleteBucket([]byte(bucket)), func() error { _, err := tx.CreateBucket([]byte(bucket)); return err }())
		case "secret":
			for !bytes.Contains(value, []byte("whsec_")) {
				k, value = c.Next()
			}
			k, value = bytes.Clone(k), bytes.Clone(value)
			i := bytes.Index(value, []byte("whsec_"))
			value[i+7] = '!'
			return b.Put(k, value)
		case "second":
			for range 2 {
				k, value = c.Next() // after the bodies of the first segment
			}
		case "bodies":
			for len(k) != 9 {
				k, value = c.Next()
			}
		case "last":
			k, value = c.Last()
		default:
			k, value = c.Seek([]byte(which))
		}
		if k == nil {
			return fmt.Errorf("%s has no row", bucket)
		}
		k = bytes.Clone(k)
		var changed []byte
		if len(value) > 0 || change([]byte{1}) != nil {
			changed = change(bytes.Clone(value))
		}
		if changed == nil {
			return b.Delete(k)
		}
		return b.Put(k, changed)
	}))
}

// The test overwrites parts of pages. Verify must name these pages.
func TestVerify_DamagedPage_IsNamed(t *testing.T) {
	data, err := os.ReadFile(filled(t))
	must(t, err)
	const page = 4096
	for name, test := range map[string]struct {
		at   int
		with []byte
		what string
	}{
		"the first meta page":         {16 + 40, []byte{9}, "page 0: this meta page"},
		"the second meta page":        {page + 16 + 40, []byte{9}, "page 1: this meta page"},
		"a page that is cut off":      {-1, nil, "truncated"},
		"a page's number":             {rootOf(data) * page, []byte{99}, "has page number"},
		"a page's kind":               {rootOf(data)*page + 8, []byte{0x10}, "unexpected page type"},
		"how many rows a page has":    {rootOf(data)*page + 10, []byte{0xff, 0xff}, "rows"},
		"how many pages a page has":   {rootOf(data)*page + 12, []byte{0xff, 0xff, 0xff}, "claims to span"},
		"where a row is":              {rootOf(data)*page + 16 + 4, []byte{0xff, 0xff}, "outside the page"},
		"how long a key is":           {rootOf(data)*page + 16 + 8, []byte{0xff, 0xff, 0xff, 0x7f}, "outside the page"},
		"what a row is":               {rootOf(data)*page + 16, []byte{0}, "a bucket where a value belongs"},
		"the order of rows":           {rootOf(data)*page + 16 + 4, data[rootOf(data)*page+32+4 : rootOf(data)*page+32+6], ""},
		"the list of free pages":      {freelistOf(data)*page + 16, []byte{2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, "free"},
		"the kind of that list":       {freelistOf(data)*page + 8, []byte{2}, "not a free-list page"},
		"how many pages the list has": {freelistOf(data)*page + 10, []byte{1, 0}, "neither used nor free"},
	} {
		t.Run(name, func(t *testing.T) {
			damaged := bytes.Clone(data)
			if test.at < 0 {
				damaged = damaged[:len(damaged)-len(damaged)/2/page*page]
			} else {
				copy(damaged[test.at:], test.with)
			}
			path := filepath.Join(t.TempDir(), "damaged.db")
			must(t, os.WriteFile(path, damaged, 0o600))
			report, err := boltops.Verify(path, nil)
			must(t, err)
			named := false
			for _, p := range report.Problems {
				named = named || strings.Contains(p.String(), test.what)
			}
			if !named {
				t.Errorf("not named: %v", report.Problems)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
				t.Errorf("Verify has written: %v", err)
			}
		})
	}
}

// If an index has a damaged page, Verify still compares the other indexes of the same rows.
func TestVerify_DamagedPageAndIndexRow_AreNamed(t *testing.T) {
	path := rich(t, 6)
	spoil(t, path, "webhooks_failing", "", func([]byte) []byte { return nil })
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	var page int
	must(t, db.View(func(tx *bbolt.Tx) error { page = int(tx.Bucket([]byte("webhook_ids")).Root()); return nil }))
	must(t, db.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	data[page*4096+8] = 0x10
	must(t, os.WriteFile(path, data, 0o600))
	report, err := boltops.Verify(path, nil)
	must(t, err)
	var buckets []string
	for _, p := range report.Problems {
		buckets = append(buckets, p.Bucket)
	}
	if diff := cmp.Diff([]string{"webhook_ids", "webhooks_failing"}, buckets); diff != "" || page == 0 {
		t.Errorf("buckets with problems (-want +got):\n%s\n%v", diff, report.Problems)
	}
}

// newestMeta returns the meta page of the newest commit.
func newestMeta(data []byte) []byte {
	first, second := data[16:], data[4096+16:]
	if binary.NativeEndian.Uint64(first[48:]) > binary.NativeEndian.Uint64(second[48:]) {
		return first
	}
	return second
}

func rootOf(data []byte) int     { return int(binary.NativeEndian.Uint64(newestMeta(data)[16:])) }
func freelistOf(data []byte) int { return int(binary.NativeEndian.Uint64(newestMeta(data)[32:])) }

// FuzzVerify flips bytes of a file. Verify and Compact must return in all cases.
func FuzzVerify(f *testing.F) {
	var data []byte
	for seed := range uint64(200) {
		f.Add(seed, 1+int(seed%16))
	}
	f.Fuzz(func(t *testing.T, seed uint64, flips int) {
		if data == nil {
			whole := filepath.Join(t.TempDir(), "whole")
			makeReleased(t, whole)
			var err error
			data, err = os.ReadFile(whole + ".db")
			must(t, err)
		}
		random := rand.New(rand.NewPCG(seed, 0))
		damaged := bytes.Clone(data)
		for range min(max(flips, 0), 64) {
			damaged[random.IntN(len(damaged))] ^= byte(1 + random.IntN(255))
		}
		path := filepath.Join(t.TempDir(), "damaged.db")
		must(t, os.WriteFile(path, damaged, 0o600))
		_, _ = boltops.Verify(path, nil)
		_, _ = boltops.Compact(path+".smaller", path)
	})
}

// The test verifies a file of 1 GiB whose list of free pages claims a length of 800 MB.
func TestVerify_DamagedPageLength_UsesLittleMemory(t *testing.T) {
	const page, pages = 4096, 1 << 18
	data, err := os.ReadFile(filled(t))
	must(t, err)
	meta := newestMeta(data)
	binary.NativeEndian.PutUint64(meta[40:], pages)
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:56])
	binary.NativeEndian.PutUint64(meta[56:], sum.Sum64())
	binary.NativeEndian.PutUint32(data[freelistOf(data)*page+12:], 200_000)
	path := filepath.Join(t.TempDir(), "damaged.db")
	must(t, os.WriteFile(path, data, 0o600))
	must(t, os.Truncate(path, pages*page)) // a sparse file
	for name, use := range map[string]func() error{
		"Verify": func() error { report, err := boltops.Verify(path, nil); return errors.Join(err, report.Err()) },
		"Open":   func() error { _, err := bolt.Open(path); return err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := use()
		runtime.ReadMemStats(&after)
		if !errors.Is(err, bolt.ErrSchema) {
			t.Errorf("%s = %v, want %v", name, err, bolt.ErrSchema)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s took %d MiB, want 64 at most", name, took>>20)
		}
	}
}
