package postgres_test

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/store/transfer"
)

var (
	twinSeed = flag.Uint64("seed", 0, "the seed of TestCopy_RandomOperations_StoresStayEqual; 0: any")
	twinOps  = flag.Int("operations", 150, "in TestCopy_RandomOperations_StoresStayEqual")
)

// Two stores run the same operations. After random operations, one of them is replaced by a copy of
// itself, in PostgreSQL and in memory in turn. Both stores must return the same results and have
// the same contents in the end.
func TestCopy_RandomOperations_StoresStayEqual(t *testing.T) {
	t.Parallel()
	seed := *twinSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	w := &twins{T: t, r: rand.New(rand.NewPCG(seed, 0)), stays: memory.New(), moves: memory.New(), deleted: make(map[string]int)}
	defer func() {
		_ = w.stays.Close()
		_ = w.moves.Close()
	}()
	inDatabase := false
	copies := 0
	for n := range *twinOps {
		if w.r.IntN(15) == 0 {
			copies++
			var to store.Store = memory.New()
			if inDatabase = !inDatabase; inDatabase {
				to = open(t, inSchema(t))
			}
			if _, err := transfer.Copy(t.Context(), to, w.moves, transfer.CopyOptions{PageSize: 1 + w.r.IntN(40)}); err != nil {
				t.Fatalf("seed %d, operation %d: %v", seed, n, err)
			}
			if err := w.moves.Close(); err != nil {
				t.Fatal(err)
			}
			w.moves = to
		}
		name, do := w.operation(n)
		want, got := do(w.stays), do(w.moves)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, operation %d, %s, after %d copies (-stays +moves):\n%s", seed, n, name, copies, diff)
		}
	}
	if diff := cmp.Diff(w.lines(w.stays), w.lines(w.moves)); diff != "" {
		t.Errorf("seed %d, after %d copies (-stays +moves):\n%s", seed, copies, diff)
	}
}

// twins runs the same operations on two stores.
type twins struct {
	*testing.T
	r            *rand.Rand
	stays, moves store.Store
	deleted      map[string]int // number of deleted webhooks by id prefix, so that no id is used twice
}

// some returns one of n ids with the prefix, at random.
func (w *twins) some(prefix string, n int) string { return fmt.Sprint(prefix, w.r.IntN(n)) }

var twinTime = time.Date(2031, 4, 5, 6, 7, 8, 0, time.UTC)

// operation returns a random operation. Run it on both stores and compare its results.
func (w *twins) operation(n int) (name string, do func(store.Store) any) {
	ctx := w.Context()
	account := w.some("acct_", 3)
	key, hook, event := account+w.some("_key_", 4), account+w.some("_wh_", 3), account+w.some("_evt_", 30)
	begin := hook
	hook = fmt.Sprint(hook, "_", w.deleted[hook])
	at := twinTime.Add(time.Duration(n) * time.Second)
	hash := driver.Hash{Sum: sha256.Sum256(fmt.Append(nil, key, n))}
	choice, states := w.r.IntN(3), []driver.DeliveryState{driver.Dead, driver.Skipped, driver.Delivered}
	secret := signing.NewSecret()
	options := driver.CreateOptions{IdempotencyKey: w.some("request_", 40), Fingerprint: sha256.Sum256([]byte(key)), IdempotencyTTL: time.Hour}
	switch w.r.IntN(13) {
	case 0:
		return "CreateKey", func(s store.Store) any {
			return fmt.Sprint(s.CreateKey(ctx, driver.Key{Account: account, ID: key, Name: key, Scopes: scopes.Of(scopes.FilesRead), CreatedAt: at, Hash: hash}, options))
		}
	case 1:
		return "UpdateKey", func(s store.Store) any {
			changed, err := s.UpdateKey(ctx, account, key, func(k *driver.Key, _ *audit.Entry) error {
				k.Previous, k.PreviousExpiresAt, k.Hash = k.Hash, at.Add(time.Hour), hash
				return nil
			})
			return fmt.Sprint(changed, err)
		}
	case 2:
		return "DeleteKey", func(s store.Store) any { return fmt.Sprint(s.DeleteKey(ctx, account, key, nil, audit.Entry{})) }
	case 3:
		return "RecordKeyUse", func(s store.Store) any {
			k, err := s.KeyByID(ctx, account, key)
			return fmt.Sprint(err, s.RecordKeyUse(ctx, []driver.KeyUse{{Account: account, ID: key, Hash: k.Hash, At: at}}))
		}
	case 4:
		return "CreateWebhook", func(s store.Store) any {
			return fmt.Sprint(s.CreateWebhook(ctx, driver.Webhook{
				Account: account, ID: hook, URL: "https://example.com/" + hook, Events: []driver.EventType{alerts.TypeBalanceLow}, WebhookHealth: driver.WebhookHealth{Active: choice > 0}, Secret: secret, CreatedAt: at,
			}, driver.CreateOptions{IdempotencyKey: options.IdempotencyKey, Fingerprint: options.Fingerprint, IdempotencyTTL: options.IdempotencyTTL}))
		}
	case 5:
		return "UpdateWebhook", func(s store.Store) any {
			_, err := s.UpdateWebhook(ctx, account, hook, func(w *driver.Webhook, _ *audit.Entry) error {
				w.Active, w.PreviousSecret, w.PreviousSecretExpiresAt, w.Secret = choice > 0, w.Secret, at, secret
				return nil
			})
			return fmt.Sprint(err)
		}
	case 6:
		if choice > 0 {
			return "Now", func(store.Store) any { return nil }
		}
		w.deleted[begin]++
		return "DeleteWebhook", func(s store.Store) any {
			return fmt.Sprint(s.DeleteWebhook(ctx, account, hook, nil, audit.Entry{}))
		}
	case 7, 8:
		return "Enqueue", func(s store.Store) any {
			n, err := s.Enqueue(ctx, driver.EncodedEvent{Account: account, ID: event, Type: alerts.TypeBalanceLow, Timestamp: at, Body: []byte(event)})
			return fmt.Sprint(n, err)
		}
	case 9:
		return "Claim", func(s store.Store) any { return w.deliver(ctx, s, at) }
	case 10:
		return "Redeliver", func(s store.Store) any { return fmt.Sprint(s.Redeliver(ctx, account, hook, event, audit.Entry{})) }
	case 11:
		return "Recovery", func(s store.Store) any {
			err := s.CreateRecovery(ctx, driver.Recovery{ID: fmt.Sprint("rec_", n), Account: account, WebhookID: hook, States: states[:1+choice], To: twinTime, CreatedAt: at}, audit.Entry{})
			if choice == 0 { // otherwise the recovery is unfinished when the store is copied
				for more := true; more && err == nil; {
					more, err = s.AdvanceRecovery(ctx, 1000)
				}
			}
			return fmt.Sprint(err)
		}
	default:
		return "UpdateAlert", func(s store.Store) any {
			_, err := s.UpdateAlert(ctx, account, "series", func(step *driver.AlertStep) error {
				step.State = fmt.Append(step.State, n)
				return nil
			})
			return fmt.Sprint(err)
		}
	}
}

// deliver claims all due deliveries and settles them with various outcomes.
func (w *twins) deliver(ctx context.Context, s store.Store, at time.Time) (claimed []string) {
	tasks, err := storetest.WorkerOf(s).Claim(ctx, 1000)
	if err != nil {
		w.Fatal(err)
	}
	slices.SortFunc(tasks, func(a, b storetest.Task) int {
		return slices.Compare([]byte(a.Event.ID+a.Webhook.ID), []byte(b.Event.ID+b.Webhook.ID))
	})
	var settlements []storetest.Settlement
	for _, task := range tasks {
		claimed = append(claimed, fmt.Sprintf("%s %q to %s: %d after %d", task.Event.ID, task.Event.Body, task.Webhook.ID, task.Attempt, task.Before))
		end := storetest.Settlement{Task: task, Effect: driver.Deliver, Attempt: driver.Attempt{Number: task.Attempt, StartedAt: at, Status: 200}}
		switch sha256.Sum256([]byte(task.Event.ID + task.Webhook.ID))[0] % 4 {
		case 0:
			end.Effect, end.RetryAfter, end.Attempt.Status, end.Attempt.Class = driver.Retry, time.Hour, 503, driver.ClassStatus
		case 1:
			end.Effect, end.Attempt.Status, end.Attempt.Class = driver.GiveUp, 404, driver.ClassStatus
		}
		settlements = append(settlements, end)
	}
	if stale, err := storetest.WorkerOf(s).Settle(ctx, settlements); err != nil || len(stale) > 0 {
		w.Fatal(stale, err)
	}
	return claimed
}

// lines returns a store's records as text, without times that depend on when an operation ran.
func (w *twins) lines(s store.Store) []string {
	lines := make(map[string]bool)
	for page, err := range transfer.Pages(w.Context(), s, "", 1000) {
		if err != nil {
			w.Fatal(err)
		}
		for _, r := range page.Records {
			switch r := r.(type) {
			case *transfer.Event:
				if r.NoBody = r.NoBody || len(r.Deliveries) == 0; r.NoBody { // a store need not keep the body of an event without deliveries
					r.Body = nil
				}
				r.PublishedAt = twinTime
				for i := range r.Deliveries {
					d := &r.Deliveries[i]
					d.First, d.AsPublished, d.Wait = false, false, 0
				}
			case *transfer.Request:
				r.At = twinTime
			case *transfer.Webhook:
				r.FailingSince, r.ProvenAt = r.FailingSince.Truncate(time.Hour), r.ProvenAt.Truncate(time.Hour)
			}
			sums := make(transfer.Summary)
			sums.Add(r)
			lines[fmt.Sprintf("%s of %q, checksum %x", r.Kind(), r.Owner(), sums[r.Kind()].Checksum)] = true
		}
	}
	return slices.Sorted(maps.Keys(lines))
}
