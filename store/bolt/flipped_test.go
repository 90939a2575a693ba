package bolt_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/store/transfer"
)

func init() { roles["use flipped"] = useFlipped }

var flippedFiles = flag.Int("flipped", 8, "how many files TestFlippedBits_EveryMethod_ReturnsErrors damages; a quarter with -short or the race detector")

// The test makes many copies of a file, and flips one bit in each: in a page number, a position or
// a length. A separate process then calls every method of the store. No method may end the process
// or hang.
func TestFlippedBits_EveryMethod_ReturnsErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "storage.db")
	copyFile(t, rich(t, 170), path)
	s := openUnverified(t, path)
	for i := range 400 { // enough keys for trees with branches
		key := driver.Key{ID: fmt.Sprintf("key_%03d", i), Account: "many", Name: "name", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}
		key.Hash.Sum[0], key.Hash.Sum[1] = byte(i), byte(i>>8)+1
		must(t, s.CreateKey(t.Context(), key, driver.CreateOptions{}))
	}
	must(t, s.Close())
	verify(t, path)

	outcomes, files := make(map[string]int), *flippedFiles
	if testing.Short() || testbubble.Raced {
		files /= 4
	}
	for seed := 0; seed < files; {
		cmd := child(t, "use flipped", dir)
		cmd.Env = append(cmd.Env, fmt.Sprint("SEED=", seed), fmt.Sprint("FILES=", files))
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		what := ""
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch outcome, name, _ := strings.Cut(lines.Text(), " "); outcome {
			case "begun":
				what = name
			case "ended":
				outcomes[name]++
				seed++
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("seed %d: %s: the process ended with %v: %.8000s", seed, what, err, said.String())
			seed++
		}
	}
	t.Logf("%d files: %v", files, outcomes)
	if files >= 20 && outcomes["error"] < files/20 {
		t.Errorf("coverage precondition failed: in %d of %d files a method met the damage", outcomes["error"], files)
	}
}

// useFlipped damages and uses one copy of the file for each seed.
func useFlipped(path string) error {
	whole, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	seed, err := strconv.Atoi(os.Getenv("SEED"))
	if err != nil {
		return err
	}
	files, err := strconv.Atoi(os.Getenv("FILES"))
	if err != nil {
		return err
	}
	for ; seed < files; seed++ {
		damaged := append([]byte(nil), whole...)
		flip(damaged, rand.New(rand.NewPCG(uint64(seed), 28)))
		path := path + ".damaged"
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			return err
		}
		fmt.Println("begun Open")
		s, err := bolt.Open(path, bolt.CacheKeys(0))
		if err != nil {
			fmt.Println("ended refused")
			continue
		}
		outcome := "nothing"
		for _, m := range methods(s) {
			fmt.Println("begun", m.name)
			hangs := time.AfterFunc(time.Minute, func() {
				fmt.Fprintln(os.Stderr, "it hangs")
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				os.Exit(1)
			})
			if m.call() != nil {
				outcome = "error"
			}
			hangs.Stop()
		}
		fmt.Println("ended", outcome)
	}
	return nil
}

// flip flips a bit of an element in a branch or leaf page.
func flip(data []byte, random *rand.Rand) {
	const page = 4096
	for {
		at := page * (2 + random.IntN(len(data)/page-2))
		kind, count := binary.NativeEndian.Uint16(data[at+8:]), int(binary.NativeEndian.Uint16(data[at+10:]))
		id := binary.NativeEndian.Uint64(data[at:])
		if id != uint64(at/page) || count == 0 || 16+16*count > page || kind != 1 && (kind != 2 || random.IntN(4) > 0) {
			continue
		}
		field, bits := 4*random.IntN(4), 32 // branch: position, size, page; leaf: flags, position, sizes
		if kind == 1 && random.IntN(2) == 0 {
			field, bits = 8, 8 // mostly another page of the file
		}
		bit := random.IntN(bits)
		data[at+16+16*random.IntN(count)+field+bit/8] ^= 1 << (bit % 8)
		return
	}
}

type method struct {
	name string
	call func() error
}

// methods returns a list of calls that includes every method of the store, with arguments that
// match the contents of the file. Close is last.
func methods(s *bolt.Store) (list []method) {
	ctx := context.Background()
	now := time.Now()
	add := func(name string, call func() error) { list = append(list, method{name, call}) }
	key := func(i int) (id string, hash driver.Hash) {
		hash.Sum[0], hash.Sum[1] = byte(i), byte(i>>8)+1
		return fmt.Sprintf("key_%03d", i), hash
	}
	each := func(n int, call func(i int) error) func() error {
		return func() (err error) {
			for i := range n {
				if failed := call(i); !errors.Is(failed, apierr.ErrNotFound) {
					err = errors.Join(err, failed)
				}
			}
			return err
		}
	}
	webhook := func(i int) string { return fmt.Sprintf("wh_%03d", i) }
	event := func(i int) string { return fmt.Sprint("event-", i) }
	encoded := func(id string) driver.EncodedEvent {
		return driver.EncodedEvent{ID: id, Account: "many", Type: alerts.TypeBalanceLow, Timestamp: now, Body: []byte("{}")}
	}
	var tasks []storetest.Task
	var refs []driver.DeliveryRef

	add("KeyByHash", each(400, func(i int) error { _, hash := key(i); _, err := s.KeyByHash(ctx, hash); return err }))
	add("KeyByHash", each(256, func(i int) error { // unknown hashes
		_, err := s.KeyByHash(ctx, driver.Hash{Sum: [32]byte{byte(i), 200, 7}})
		return err
	}))
	add("KeyByID", each(400, func(i int) error { id, _ := key(i); _, err := s.KeyByID(ctx, "many", id); return err }))
	add("ListKeys", func() error { _, err := s.ListKeys(ctx, "many", driver.ListQuery{Limit: 1000}); return err })
	add("ExpiringKeys", func() error {
		_, err := s.ExpiringKeys(ctx, driver.ExpiryQuery{Before: now.AddDate(100, 0, 0), Limit: 1000})
		return err
	})
	add("WebhookByID", each(100, func(i int) error { _, err := s.WebhookByID(ctx, "many", webhook(i)); return err }))
	add("ListWebhooks", func() error { _, err := s.ListWebhooks(ctx, "many", driver.ListQuery{Limit: 1000}); return err })
	add("FailingWebhooks", func() error { _, err := s.FailingWebhooks(ctx, now, driver.ListQuery{Limit: 100}); return err })
	add("OffWebhooks", func() error { _, err := s.OffWebhooks(ctx, driver.ListQuery{Limit: 100}); return err })
	add("HeldWebhooks", func() error { _, err := s.HeldWebhooks(ctx, driver.ListQuery{Limit: 100}); return err })
	add("EventByID", each(170, func(i int) error { _, _, err := s.EventByID(ctx, "many", event(i)); return err }))
	add("EventDeliveries", each(170, func(i int) error { _, err := s.EventDeliveries(ctx, "many", event(i)); return err }))
	add("ListEvents", func() error { _, err := s.ListEvents(ctx, "many", driver.EventQuery{Limit: 1000}); return err })
	add("ListEvents", func() error {
		_, err := s.ListEvents(ctx, "many", driver.EventQuery{Limit: 1000, OldestFirst: true})
		return err
	})
	add("ListDeliveries", each(100, func(i int) error {
		_, err := s.ListDeliveries(ctx, "many", webhook(i), driver.DeliveryQuery{Limit: 1000})
		return err
	}))
	add("ListDeliveries", each(10, func(i int) error {
		_, err := s.ListDeliveries(ctx, "many", webhook(i), driver.DeliveryQuery{Limit: 1000, States: []driver.DeliveryState{driver.Dead}})
		return err
	}))
	add("ListAuditEntries", func() error { _, err := s.ListAuditEntries(ctx, "acct_1", audit.Query{Limit: 1000}); return err })
	add("PendingAccounts", func() error { _, err := s.PendingAccounts(ctx, "", 1000); return err })
	add("PendingAuditEntries", func() error { _, err := s.PendingAuditEntries(ctx, "acct_1", 1000); return err })
	add("RecoveryByID", func() error { _, err := s.RecoveryByID(ctx, "many", "rec"); return err })
	add("DueAlerts", func() error { _, err := s.DueAlerts(ctx, 100); return err })
	add("UnseenKeys", func() error {
		_, err := s.UnseenKeys(ctx, "acct_1", []driver.DedupKey{{Key: "x", Until: now.Add(time.Hour)}})
		return err
	})
	add("AccountSizes", func() error { _, err := s.AccountSizes(ctx, []string{"acct_1", "many"}); return err })
	add("Accounts", func() error { _, err := s.Accounts(ctx, "", 100); return err })
	add("Ping", func() error { return s.Ping(ctx) })
	add("Unreported", func() error { _, err := s.Unreported(ctx, ""); return err })
	add("Deliver", func() error {
		var r storetest.Recorder
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		ends, stop := context.WithCancel(within)
		returned := make(chan error, 1)
		go func() { returned <- s.Deliver(ends, &r) }()
		var trouble error
		err := r.Wait(within, func(reports []storetest.Report) bool {
			for _, report := range reports {
				if report.Method == "Trouble" {
					trouble = report.Err
					return true
				}
			}
			return false
		})
		stop()
		if ended := <-returned; !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
		for _, report := range r.Reports() {
			if report.Method == "Add" {
				refs = append(refs, report.Ref)
			}
		}
		return errors.Join(err, trouble)
	})
	add("Load", func() error {
		list, err := s.Load(ctx, refs)
		for _, d := range list {
			err = errors.Join(err, d.Err)
		}
		return err
	})
	add("Settle", func() error {
		var results []driver.AttemptResult
		for i, ref := range refs[:min(len(refs), 10)] {
			outcome := []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry}[i%3]
			results = append(results, driver.AttemptResult{DeliveryRef: ref, Effect: outcome, RetryAfter: time.Hour, Attempt: driver.Attempt{Number: 100, StartedAt: now}})
		}
		_, err := s.Settle(ctx, results, nil)
		return err
	})
	add("Now", func() error { _, err := s.Now(ctx); return err })
	add("Doubt", func() error { s.Capabilities().Doubt(); return nil })
	add("FileSize", func() error { s.FileSize(); return nil })
	add("Capabilities", func() error { s.Capabilities(); return nil })
	add("Halted", s.Halted)
	add("Export", func() error {
		for after, pages := "", 0; pages < 100; pages++ {
			page, err := s.Export(ctx, "many", after, 100)
			if after = page.Next; err != nil || after == "" {
				return err
			}
		}
		return nil
	})
	add("Backup", func() error { _, err := s.Backup(ctx, io.Discard); return err })

	add("CreateKey", each(10, func(i int) error {
		k := driver.Key{Account: "many", Name: "new", CreatedAt: now}
		k.ID, k.Hash = fmt.Sprint("key_new", i), driver.Hash{Sum: [32]byte{byte(25 * i), 99}}
		return s.CreateKey(ctx, k, driver.CreateOptions{IdempotencyKey: k.ID, IdempotencyTTL: time.Hour})
	}))
	add("UpdateKey", each(20, func(i int) error {
		id, _ := key(20 * i)
		_, err := s.UpdateKey(ctx, "many", id, func(k *driver.Key, _ *audit.Entry) error { k.Name = "renamed"; return nil })
		return err
	}))
	add("RecordKeyUse", func() error {
		var uses []driver.KeyUse
		for i := range 400 {
			id, hash := key(i)
			uses = append(uses, driver.KeyUse{Account: "many", ID: id, Hash: hash, At: now})
		}
		return s.RecordKeyUse(ctx, uses)
	})
	add("CreateWebhook", each(4, func(i int) error {
		return s.CreateWebhook(ctx, driver.Webhook{Account: "many", ID: fmt.Sprint("wh_new", i), URL: "https://example.com/", CreatedAt: now}, driver.CreateOptions{})
	}))
	add("UpdateWebhook", each(20, func(i int) error {
		_, err := s.UpdateWebhook(ctx, "many", webhook(5*i), func(w *driver.Webhook, _ *audit.Entry) error { w.URL += "x"; return nil })
		return err
	}))
	add("UpdateAlert", func() error {
		_, err := s.UpdateAlert(ctx, "acct_1", "series", func(a *driver.AlertStep) error { a.State = append(a.State, 1); return nil })
		return err
	})
	add("UpdateScan", func() error {
		return s.UpdateScan(ctx, func(state []byte) ([]byte, error) { return append(state, ' '), nil })
	})
	add("AddAuditEntries", func() error {
		_, err := s.AddAuditEntries(ctx, []audit.Entry{{ID: "aud_new", Account: "many", At: now, Action: audit.KeyChanged, Pending: true}})
		return err
	})
	add("LeaseAudit", func() error { _, err := s.LeaseAudit(ctx, "me", time.Minute); return err })
	add("TakeAuditEntries", func() error { return s.TakeAuditEntries(ctx, []uint64{1, 2, 3}) })
	add("Enqueue", each(10, func(i int) error { _, err := s.Enqueue(ctx, encoded(fmt.Sprint("new-", i))); return err }))
	add("EnqueueOnce", func() error {
		_, err := s.EnqueueOnce(ctx, encoded("once"), []driver.DedupKey{{Key: "k", Until: now.Add(time.Hour)}})
		return err
	})
	add("Claim", func() (err error) {
		tasks, err = storetest.WorkerOf(s).Claim(ctx, 1000)
		for _, task := range tasks {
			err = errors.Join(err, task.Err)
		}
		return err
	})
	add("Settle", func() error {
		var settled []storetest.Settlement
		for i, task := range tasks {
			outcome := []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry}[i%3]
			settled = append(settled, storetest.Settlement{Task: task, Effect: outcome, RetryAfter: time.Hour, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: now}})
		}
		_, err := storetest.WorkerOf(s).Settle(ctx, settled)
		return err
	})
	add("Redeliver", each(10, func(i int) error { return s.Redeliver(ctx, "many", webhook(i), event(17*i), audit.Entry{}) }))
	add("Probe", each(4, func(i int) error { return s.Probe(ctx, "many", webhook(i)) }))
	add("CreateRecovery", func() error {
		return s.CreateRecovery(ctx, driver.Recovery{ID: "rec_new", Account: "many", WebhookID: "wh_002", CreatedAt: now, States: []driver.DeliveryState{driver.Delivered}}, audit.Entry{})
	})
	add("AdvanceRecovery", each(4, func(int) error { _, err := s.AdvanceRecovery(ctx, 100); return err }))
	add("Import", func() error {
		return s.Import(ctx, []transfer.Record{&transfer.Key{Key: driver.Key{ID: "key_imported", Account: "other", Hash: driver.Hash{Sum: [32]byte{3, 3}}, CreatedAt: now}}})
	})
	add("DeleteKey", each(20, func(i int) error {
		id, _ := key(20*i + 1)
		return s.DeleteKey(ctx, "many", id, func(driver.Key) error { return nil }, audit.Entry{})
	}))
	add("DeleteWebhook", each(10, func(i int) error {
		return s.DeleteWebhook(ctx, "many", webhook(10*i), func(driver.Webhook) error { return nil }, audit.Entry{})
	}))
	add("Purge", func() error {
		later := now.Add(time.Minute)
		for range 20 {
			more, err := s.Purge(ctx, driver.Purge{Payloads: later, Attempts: later, EventIDs: later, DedupKeys: later, Limit: 100})
			if err != nil || !more {
				return err
			}
		}
		return nil
	})
	add("EraseAccount", func() error {
		for range 30 {
			_, more, err := s.EraseAccount(ctx, "many", 500)
			if err != nil || !more {
				return err
			}
		}
		return nil
	})
	add("Leave", func() error { return s.Leave(ctx, "elsewhere") })
	add("Close", s.Close)
	return list
}

// The test fails if methods lacks a method of the store, for example a new one.
func TestFlippedBits_Methods_AreComplete(t *testing.T) {
	s := openUnverified(t, filepath.Join(t.TempDir(), "storage.db")).(*bolt.Store)
	called := map[string]bool{}
	for _, m := range methods(s) {
		called[m.name] = true
		if err := m.call(); err != nil && m.name != "RecoveryByID" && m.name != "CreateRecovery" {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	var _ store.Store = s
	for method := range reflect.TypeOf(s).Methods() {
		if name := method.Name; !called[name] {
			t.Errorf("%s is not called on damaged files", name)
		}
	}
}
