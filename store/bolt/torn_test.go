package bolt

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

var (
	tornVariants = flag.Int("torn", 8, "of each kind, how many files TestPowerLoss tries for each change")
	tornSeed     = flag.Uint64("torn-seed", 1, "what TestPowerLoss draws them with")
)

const (
	sector   = 512
	metaSize = 96 // bytes of a meta page that may change
)

// TestPowerLoss creates the files that a power loss can leave during each kind of change, and opens
// and uses them. A commit extends the file, writes the changed pages, syncs, writes one of the two
// meta pages, and syncs again. So a power loss leaves any subset of the changed sectors without the
// meta page, or all of the sectors with part of the meta page. The change must be complete or
// absent, and all other data must be unchanged.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	if testbubble.Raced {
		t.Skip("opens hundreds of files, one after the other: runs without the race detector")
	}
	path := filepath.Join(t.TempDir(), "storage.db")
	s := fillForChanges(t, path)
	defer func() { _ = s.Close() }()
	random := rand.New(rand.NewPCG(*tornSeed, 0))
	files, grown := 0, 0
	for _, change := range changes {
		c := commitOf(t, s, change.do)
		if len(c.after) > len(c.before) {
			grown++
		}
		t.Run(change.name, func(t *testing.T) {
			for _, v := range c.variants(random) {
				files++
				c.check(t, v, random.IntN(4) == 0)
			}
		})
	}
	CheckSound(t, s)
	t.Logf("%d files of %d changes, %d of which let the file grow; seed %d", files, len(changes), grown, *tornSeed)
	if grown < 2 {
		t.Error("hardly a change lets the file grow: the test tests too little")
	}
}

// A commit holds the file and its records, before and after a commit.
type commit struct {
	before, after               []byte
	recordsBefore, recordsAfter map[string]string
	meta                        int // offset of the written meta page
}

// A variant is a file that a power loss can leave.
type variant struct {
	name    string
	file    []byte
	changed bool // whether the file must have the change
}

func commitOf(t *testing.T, s *engine, change func(context.Context, *engine) error) commit {
	read := func() ([]byte, map[string]string, int) {
		file, err := os.ReadFile(s.db.Path())
		if err != nil {
			t.Fatal(err)
		}
		records, tx := dump(t, s)
		return file, records, tx
	}
	var c commit
	var first, last int
	c.before, c.recordsBefore, first = read()
	if err := change(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	c.after, c.recordsAfter, last = read()
	c.meta = last % 2 * s.db.Info().PageSize
	if last != first+1 {
		t.Fatalf("the change took %d commits, want 1", last-first)
	}
	if maps.Equal(c.recordsBefore, c.recordsAfter) {
		t.Fatal("the change changes nothing")
	}
	return c
}

// variants returns random variants of the commit.
func (c *commit) variants(random *rand.Rand) []variant {
	list := []variant{
		{"nothing written", c.before, false},
		{"everything written", c.after, true},
		{"all but the meta page", c.mix(len(c.after), 1, 0, random), false},
	}
	for range *tornVariants {
		share := random.Float64()
		list = append(list, variant{fmt.Sprintf("%.0f %% of the sectors", 100*share), c.mix(len(c.after), share, 0, random), false})

		torn := 1 + random.IntN(metaSize-1)
		file := c.mix(len(c.after), 1, torn, random)
		list = append(list, variant{fmt.Sprintf("%d bytes of the meta page", torn), file, bytes.Equal(file, c.after)})

		if growth := len(c.after) - len(c.before); growth > 0 {
			size := len(c.before) + random.IntN(growth+1)
			list = append(list, variant{fmt.Sprintf("grown by %d of %d bytes", size-len(c.before), growth), c.mix(size, share, 0, random), false})
		}
	}
	return list
}

// mix returns a file of the given size. It has a random share of the sectors that the commit
// changed, and the first meta bytes of the meta page that the commit wrote.
func (c *commit) mix(size int, share float64, meta int, random *rand.Rand) []byte {
	file := make([]byte, size)
	copy(file, c.before)
	for at := 0; at < size; at += sector {
		end := min(at+sector, size)
		isMeta := at >= c.meta && at < c.meta+sector
		if !isMeta && !bytes.Equal(file[at:end], c.after[at:end]) && random.Float64() < share {
			copy(file[at:end], c.after[at:end])
		}
	}
	copy(file[c.meta:], c.after[c.meta:c.meta+meta])
	return file
}

// check opens the file, and checks that it has the records before or after the change. If goOn is
// true, it continues to use the file.
func (c *commit) check(t *testing.T, v variant, goOn bool) {
	path := filepath.Join(t.TempDir(), "storage.db")
	if err := os.WriteFile(path, v.file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := open(path)
	if err != nil {
		t.Errorf("%s: %v", v.name, err)
		return
	}
	defer func() { _ = s.Close() }()
	want := c.recordsBefore
	if v.changed {
		want = c.recordsAfter
	}
	if got, _ := dump(t, s); !maps.Equal(got, want) {
		t.Errorf("%s: %d records, which are not the %d that must be there", v.name, len(got), len(want))
	}
	if goOn {
		if err := workWith(t.Context(), s); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("%s: %v", v.name, err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", v.name, err)
	}
}

// dump returns all contents of the file, and the number of the last commit.
func dump(t *testing.T, s *engine) (map[string]string, int) {
	records := make(map[string]string)
	var last int
	err := s.db.View(func(tx *bbolt.Tx) error {
		last = tx.ID()
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			return bucket.ForEach(func(k, v []byte) error {
				records[string(name)+" "+string(k)] = string(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return records, last
}

// workWith publishes an event and delivers all due deliveries.
func workWith(ctx context.Context, s *engine) error {
	const id = "zz-afterwards"
	n, err := s.Enqueue(ctx, driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Body: make([]byte, 500)})
	if err != nil || n == 0 {
		return fmt.Errorf("Enqueue = %d, %v", n, err)
	}
	for {
		tasks, err := storetest.WorkerOf(s).Claim(ctx, 100)
		if err != nil {
			return err
		}
		if len(tasks) == 0 {
			break
		}
		var settlements []storetest.Settlement
		for _, task := range tasks {
			if task.Err != nil {
				return fmt.Errorf("%s to %s: %w", task.Event.ID, task.Webhook.ID, task.Err)
			}
			settlements = append(settlements, settlementOf(task, driver.Deliver))
		}
		if stale, err := storetest.WorkerOf(s).Settle(ctx, settlements); err != nil || len(stale) > 0 {
			return fmt.Errorf("Settle = %v, %v", stale, err)
		}
	}
	deliveries, err := s.EventDeliveries(ctx, "acct", id)
	if err != nil || len(deliveries) < n {
		return fmt.Errorf("%d deliveries of %d, %v", len(deliveries), n, err)
	}
	for _, d := range deliveries[:n] {
		if d.State == driver.Pending {
			return fmt.Errorf("%s to %s is %s", d.EventID, d.WebhookID, d.State)
		}
	}
	return nil
}

func settlementOf(task storetest.Task, outcome driver.Effect) storetest.Settlement {
	return storetest.Settlement{
		Task: task, Effect: outcome, RetryAfter: time.Hour,
		Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now().Truncate(time.Millisecond), Error: "refused"},
	}
}

// fillForChanges creates a file to which all the changes can be made.
func fillForChanges(t *testing.T, path string) *engine {
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		must(s.CreateKey(t.Context(), testKey(i), driver.CreateOptions{}))
	}
	for i := range 8 {
		must(s.CreateWebhook(t.Context(), testWebhook(i), driver.CreateOptions{}))
	}
	for i := range 60 {
		_, err := s.Enqueue(t.Context(), testEvent(i, 500))
		must(err)
	}
	must(settleSome(t.Context(), s))
	return s
}

func testKey(i int) driver.Key {
	key := driver.Key{ID: fmt.Sprint("key", i), Account: "acct", Name: "a key", Scopes: scopes.Specified()}
	key.Hash.Sum[0], key.Hash.Sum[1] = byte(i), 1
	return key
}

func testWebhook(i int) driver.Webhook {
	return driver.Webhook{
		ID: fmt.Sprint("wh", i), Account: "acct", URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: i > 0},
		Events: []driver.EventType{alerts.TypeBalanceLow},
	}
}

func testEvent(i, size int) driver.EncodedEvent {
	return driver.EncodedEvent{
		ID: fmt.Sprintf("evt%04d", i), Account: "acct", Type: alerts.TypeBalanceLow,
		Timestamp: time.Now().Truncate(time.Millisecond), Body: bytes.Repeat([]byte{'x'}, size),
	}
}

// settleSome settles deliveries of several webhooks with all outcomes, in one step.
func settleSome(ctx context.Context, s *engine) error {
	tasks, err := storetest.WorkerOf(s).Claim(ctx, 24)
	if err != nil {
		return err
	}
	var settlements []storetest.Settlement
	for i, task := range tasks {
		outcome := []driver.Effect{driver.Deliver, driver.Retry, driver.GiveUp, storetest.Postpone}[i%4]
		settlements = append(settlements, settlementOf(task, outcome))
	}
	_, err = storetest.WorkerOf(s).Settle(ctx, settlements)
	return err
}

// changes has every kind of change to a store, in an order in which they are possible. Each change
// takes one commit.
var changes = []struct {
	name string
	do   func(context.Context, *engine) error
}{
	{"CreateKey", func(ctx context.Context, s *engine) error {
		return s.CreateKey(ctx, testKey(100), driver.CreateOptions{})
	}},
	{"UpdateKey", func(ctx context.Context, s *engine) error {
		_, err := s.UpdateKey(ctx, "acct", "key7", func(key *driver.Key, _ *audit.Entry) error {
			key.Previous, key.Hash = key.Hash, testKey(101).Hash
			return nil
		})
		return err
	}},
	{"RecordKeyUse", func(ctx context.Context, s *engine) error {
		return s.RecordKeyUse(ctx, []driver.KeyUse{{Account: "acct", ID: "key7", At: time.Now()}, {Account: "acct", ID: "key8", At: time.Now()}})
	}},
	{"DeleteKey", func(ctx context.Context, s *engine) error {
		return s.DeleteKey(ctx, "acct", "key7", nil, audit.Entry{})
	}},
	{"CreateWebhook", func(ctx context.Context, s *engine) error {
		return s.CreateWebhook(ctx, testWebhook(100), driver.CreateOptions{})
	}},
	{"UpdateWebhook", func(ctx context.Context, s *engine) error {
		_, err := s.UpdateWebhook(ctx, "acct", "wh3", func(w *driver.Webhook, _ *audit.Entry) error {
			w.Active = false
			return nil
		})
		return err
	}},
	{"Enqueue", func(ctx context.Context, s *engine) error {
		_, err := s.Enqueue(ctx, testEvent(100, 500))
		return err
	}},
	{"Enqueue much", func(ctx context.Context, s *engine) error {
		_, err := s.Enqueue(ctx, testEvent(101, 250<<10))
		return err
	}},
	{"UpdateAlert", func(ctx context.Context, s *engine) error {
		_, err := s.UpdateAlert(ctx, "acct", "series", func(step *driver.AlertStep) error {
			step.State = []byte("state")
			step.Events = []driver.AlertEvent{{EncodedEvent: testEvent(200, 500)}, {EncodedEvent: testEvent(201, 500), WebhookID: "wh1"}}
			return nil
		})
		return err
	}},
	{"CreateWebhook that makes an alert due", func(ctx context.Context, s *engine) error {
		return s.CreateWebhook(ctx, testWebhook(101), driver.CreateOptions{})
	}},
	{"UpdateAlert that was due", func(ctx context.Context, s *engine) error {
		_, err := s.UpdateAlert(ctx, "acct", "series", func(*driver.AlertStep) error { return nil })
		return err
	}},
	{"UpdateScan", func(ctx context.Context, s *engine) error {
		return s.UpdateScan(ctx, func([]byte) ([]byte, error) { return []byte("state"), nil })
	}},
	{"EnqueueOnce", func(ctx context.Context, s *engine) error {
		_, err := s.EnqueueOnce(ctx, testEvent(300, 500), []driver.DedupKey{{Key: "a", Until: time.Now()}, {Key: "b", Until: time.Now()}})
		return err
	}},
	{"Settle", settleSome},
	{"Redeliver", func(ctx context.Context, s *engine) error {
		deliveries, err := s.EventDeliveries(ctx, "acct", testEvent(0, 0).ID)
		for _, d := range deliveries {
			if d.State == driver.Delivered {
				return s.Redeliver(ctx, "acct", d.WebhookID, d.EventID, audit.Entry{})
			}
		}
		return errors.Join(err, errors.New("nothing is delivered"))
	}},
	{"CreateRecovery", func(ctx context.Context, s *engine) error {
		return s.CreateRecovery(ctx, driver.Recovery{
			ID: "rec", Account: "acct", WebhookID: "wh0", States: []driver.DeliveryState{driver.Skipped}, To: time.Now().Add(time.Hour),
		}, audit.Entry{})
	}},
	{"AdvanceRecovery", func(ctx context.Context, s *engine) error {
		_, err := s.AdvanceRecovery(ctx, 20)
		return err
	}},
	{"DeleteWebhook", func(ctx context.Context, s *engine) error {
		return s.DeleteWebhook(ctx, "acct", "wh4", nil, audit.Entry{})
	}},
	{"Enqueue much more", func(ctx context.Context, s *engine) error {
		_, err := s.Enqueue(ctx, testEvent(102, 1<<20))
		return err
	}},
	{"Purge", func(ctx context.Context, s *engine) error {
		now := time.Now().Add(time.Hour)
		_, err := s.Purge(ctx, driver.Purge{Payloads: now, Attempts: now, EventIDs: now, DedupKeys: now, Limit: 100})
		return err
	}},
}
