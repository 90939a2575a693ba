package bolt_test

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/store/transfer"
)

func init() { roles["erase"] = eraseBesideOthers }

// eraseEvents is the number of events of the erased account; eraseHooks webhooks get each event.
const eraseEvents, eraseHooks = 120, 2

// The test kills a process that erases an account while it publishes, claims and settles for
// another account. The next process continues the erasure. The receipt must count all records, no
// method may return anything of the erased account, and the other account must keep everything.
func TestErase_ProcessKilled_NextProcessContinues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	published, delivered := make(map[string]bool), make(map[string]bool)
	middle := 0
	for round := range max(1, *kills/4) {
		s := open(t, dir)
		want := toErase(t, s)
		must(t, s.Close())
		delay := time.Duration(mathrand.Int64N(int64(40 * time.Millisecond)))
		for _, line := range killAfter(t, child(t, "erase", dir), delay) {
			switch what, id, _ := strings.Cut(line, " "); what {
			case "published":
				published[id] = true
			case "delivered":
				delivered[id] = true
			}
		}
		s = open(t, dir)
		err := s.CreateKey(t.Context(), driver.Key{ID: "new", Account: "gone", Hash: markedHash("new", 1)}, driver.CreateOptions{})
		if errors.Is(err, auth.ErrErasing) {
			middle++
			if erased := eraseRest(t, s, "gone"); erased != want {
				t.Errorf("round %d: receipt (-want +got):\n%s", round, cmp.Diff(want, erased))
			}
		} else {
			must(t, err) // the process completed the erasure: the account is unknown
			if erased := eraseRest(t, s, "gone"); erased != (store.Receipt{Keys: 1}) {
				t.Errorf("round %d: after the end of an erasure and a key that is new: %+v", round, erased)
			}
		}
		wantGone(t, s)
		wantKept(t, s, published, delivered)
		must(t, s.Close())
		report, err := boltops.Verify(filepath.Join(dir, "storage.db"), nil)
		must(t, errors.Join(err, report.Err()))
	}
	t.Logf("%d of %d kills in the middle of an erasure, %d published and %d delivered beside", middle, max(1, *kills/4), len(published), len(delivered))
	if middle == 0 || len(published) == 0 {
		t.Error("no kill was in the middle of an erasure, or nothing went on beside it: the test tests nothing")
	}
}

// toErase gives the account "gone" a record of each kind, and returns the expected receipt of its
// erasure.
func toErase(t *testing.T, s store.Store) store.Receipt {
	t.Helper()
	ctx := t.Context()
	request := driver.CreateOptions{IdempotencyKey: "request", IdempotencyTTL: time.Hour}
	request.AuditEntry = audit.Entry{ID: "ntc", Account: "gone", Action: audit.KeyCreated, Pending: true, Target: audit.Target{Kind: audit.TargetKey, ID: "key"}}
	must(t, s.CreateKey(ctx, driver.Key{ID: "key", Account: "gone", Hash: markedHash("gone", 1), Previous: markedHash("gone", 2)}, request))
	for i := range eraseHooks {
		must(t, s.CreateWebhook(ctx, driver.Webhook{
			ID: fmt.Sprint("gone", i), Account: "gone", URL: "https://example.com", Secret: signing.NewSecret(), WebhookHealth: driver.WebhookHealth{Active: true},
			Events: []driver.EventType{alerts.TypeBalanceLow},
		}, driver.CreateOptions{}))
	}
	_, err := s.UpdateAlert(ctx, "gone", "series", func(step *driver.AlertStep) error { step.State = []byte("1"); return nil })
	must(t, err)
	must(t, s.CreateRecovery(ctx, driver.Recovery{ID: "recovery", Account: "gone", WebhookID: "gone0", States: []driver.DeliveryState{driver.Dead}}, audit.Entry{}))
	var wg sync.WaitGroup
	for i := range eraseEvents {
		wg.Go(func() {
			event := driver.EncodedEvent{ID: fmt.Sprint("event", i), Account: "gone", Type: alerts.TypeBalanceLow, Body: []byte("body")}
			if _, err := s.EnqueueOnce(ctx, event, []driver.DedupKey{{Key: event.ID, Until: time.Now().Add(time.Hour)}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for range 2 { // the first deliveries get one or two attempts
		tasks, err := storetest.WorkerOf(s).Claim(ctx, eraseEvents/2, "gone0")
		must(t, err)
		var list []storetest.Settlement
		for i, task := range tasks {
			list = append(list, storetest.Settlement{
				Task: task, Effect: []driver.Effect{driver.Deliver, driver.GiveUp, driver.Retry}[i%3],
				Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now()},
			})
		}
		_, err = storetest.WorkerOf(s).Settle(ctx, list)
		must(t, err)
	}
	return store.Receipt{
		Keys: 1, Webhooks: eraseHooks, Events: eraseEvents, Deliveries: eraseHooks * eraseEvents, Recoveries: 1, Alerts: 1,
		DedupKeys: eraseEvents, IdempotencyKeys: 1, AuditEntries: 1,
	}
}

// eraseRest erases an account, or continues its erasure.
func eraseRest(t *testing.T, s store.Store, account string) store.Receipt {
	t.Helper()
	for {
		erased, more, err := s.EraseAccount(t.Context(), account, 20)
		must(t, err)
		if !more {
			return erased
		}
	}
}

// wantGone checks that no method returns anything of the account "gone".
func wantGone(t *testing.T, s store.Store) {
	t.Helper()
	ctx := t.Context()
	found := func(what string, n int, err error, absent error) {
		t.Helper()
		if n > 0 || !errors.Is(err, absent) {
			t.Errorf("%s of what was erased: %d, %v", what, n, err)
		}
	}
	for page, err := range transfer.Pages(ctx, s, "gone", 100) {
		found("Export", len(page.Records)+len(page.Unreadable), err, nil)
	}
	for n := range byte(2) {
		_, err := s.KeyByHash(ctx, markedHash("gone", n+1))
		found("KeyByHash", 0, err, apierr.ErrNotFound)
	}
	keys, err := s.ListKeys(ctx, "gone", driver.ListQuery{Limit: 9})
	found("ListKeys", len(keys), err, nil)
	hooks, err := s.ListWebhooks(ctx, "gone", driver.ListQuery{Limit: 9})
	found("ListWebhooks", len(hooks), err, nil)
	events, err := s.ListEvents(ctx, "gone", driver.EventQuery{Limit: 9})
	found("ListEvents", len(events.Events), err, nil)
	told, err := s.ListAuditEntries(ctx, "gone", audit.Query{Limit: 9})
	found("ListAuditEntries", len(told.Entries), err, nil)
	pending, err := s.PendingAuditEntries(ctx, "gone", 9)
	found("PendingAuditEntries", len(pending), err, nil)
	for i := range eraseHooks {
		id := fmt.Sprint("gone", i)
		_, err := s.WebhookByID(ctx, "gone", id)
		found("WebhookByID", 0, err, apierr.ErrNotFound)
		_, err = s.ListDeliveries(ctx, "gone", id, driver.DeliveryQuery{Limit: 9})
		found("ListDeliveries", 0, err, apierr.ErrNotFound)
		backlog, err := storetest.WorkerOf(s).Backlog(ctx, id)
		found("Backlog", backlog.Pending, err, nil)
	}
	for i := range eraseEvents {
		id := fmt.Sprint("event", i)
		_, err := s.EventDeliveries(ctx, "gone", id)
		found("EventDeliveries", 0, err, apierr.ErrNotFound)
		fresh, err := s.UnseenKeys(ctx, "gone", []driver.DedupKey{{Key: id}})
		found("UnseenKeys", 1-len(fresh), err, nil)
	}
	_, err = s.RecoveryByID(ctx, "gone", "recovery")
	found("RecoveryByID", 0, err, apierr.ErrNotFound)
	tasks, err := storetest.WorkerOf(s).Claim(ctx, 9, "gone0", "gone1")
	found("Claim", len(tasks), err, nil)
	sizes, err := s.AccountSizes(ctx, []string{"gone"})
	if err != nil || len(sizes) > 0 && sizes[0] != (store.AccountSize{Account: "gone"}) {
		t.Errorf("AccountSizes of what was erased: %+v, %v", sizes, err)
	}
}

// wantKept checks that the other account has everything acknowledged to it: each event once, and
// the settled deliveries as delivered.
func wantKept(t *testing.T, s store.Store, published, delivered map[string]bool) {
	t.Helper()
	states, pending := make(map[string]driver.DeliveryState), 0
	for query := (driver.DeliveryQuery{Limit: 1000}); ; {
		page, err := s.ListDeliveries(t.Context(), "other", "other", query)
		must(t, err)
		for _, d := range page.Deliveries {
			if states[d.EventID] != "" {
				t.Errorf("%s is listed twice", d.EventID)
			}
			if states[d.EventID] = d.State; d.State == driver.Pending {
				pending++
			}
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	for id := range published {
		if states[id] == "" {
			t.Errorf("%s was published, and is not there", id)
		}
	}
	for id := range delivered {
		if states[id] != driver.Delivered {
			t.Errorf("%s was settled as delivered, and is %q", id, states[id])
		}
	}
	if backlog, err := storetest.WorkerOf(s).Backlog(t.Context(), ""); err != nil || backlog.Pending != pending {
		t.Errorf("pending: %d, want %d, %v", backlog.Pending, pending, err)
	}
}

// eraseBesideOthers erases the account "gone", a few records at a time, while it publishes and
// delivers for another account. It first prints that the account is closed, and then a line for
// each acknowledged change of the other account.
func eraseBesideOthers(path string) error {
	s, err := bolt.Open(path, bolt.Wait(10*time.Second))
	if err != nil {
		return err
	}
	ctx := context.Background()
	hook := driver.Webhook{
		ID: "other", Account: "other", URL: "https://example.com", Secret: signing.NewSecret(), WebhookHealth: driver.WebhookHealth{Active: true}, Events: []driver.EventType{alerts.TypeBalanceLow},
	}
	if err := s.CreateWebhook(ctx, hook, driver.CreateOptions{}); err != nil && !errors.Is(err, apierr.ErrExists) {
		return err
	}
	if _, _, err := s.EraseAccount(ctx, "gone", 20); err != nil {
		return err
	}
	fmt.Println("begun")
	var mu sync.Mutex // guards whole lines of output
	say := func(what, id string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, id)
	}
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				id := fmt.Sprint("event", mathrand.Uint64())
				if _, err := s.Enqueue(ctx, driver.EncodedEvent{ID: id, Account: "other", Type: alerts.TypeBalanceLow, Body: []byte("body")}); err != nil {
					failed <- err
					return
				}
				say("published", id)
			}
		}()
	}
	for range 2 {
		go func() {
			for {
				tasks, err := storetest.WorkerOf(s).Claim(ctx, 3)
				var list []storetest.Settlement
				for _, task := range tasks {
					if task.Webhook.Account != "other" {
						err = fmt.Errorf("claimed for %s, which is being erased", task.Webhook.Account)
					}
					list = append(list, storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: time.Now()}})
				}
				if err == nil {
					_, err = storetest.WorkerOf(s).Settle(ctx, list)
				}
				if err != nil {
					failed <- err
					return
				}
				for _, task := range tasks {
					say("delivered", task.Event.ID)
				}
			}
		}()
	}
	go func() {
		for more := true; more; {
			var err error
			if _, more, err = s.EraseAccount(ctx, "gone", 2); err != nil {
				failed <- err
				return
			}
		}
	}()
	return <-failed
}
