package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/store/transfer"
	"github.com/storageapi/storageapi/webhooks"
)

// TestTwins makes the same calls to a memory store and a file, and compares the results. With every
// other seed, the file is reopened from time to time, and the contents of both stores are sometimes
// moved to a store of the other kind, between random operations.
func TestTwins(t *testing.T) {
	first, n := uint64(1), max(2, wanted()/5)
	if *theSeed > 0 {
		first, n = *theSeed, 1
	}
	for seed := first; seed < first+uint64(n); seed++ {
		dir := directory(t)
		testbubble.Run(t, func(t *testing.T) { liveAsTwins(t, seed, filepath.Join(dir, "storage.db")) })
		_ = os.RemoveAll(dir)
	}
}

// A twin is one of the two stores, with the tasks claimed from it.
type twin struct {
	store.Store
	worker *storetest.Worker
	tasks  map[[2]string]storetest.Task // by webhook and event
}

func newTwin(s store.Store) *twin {
	return &twin{s, storetest.NewWorker(s), make(map[[2]string]storetest.Task)}
}

// use replaces the store. No task may be claimed when it is called.
func (t *twin) use(s store.Store) {
	t.worker.Close()
	t.Store, t.worker = s, storetest.NewWorker(s)
}

// A deed is an operation on both stores. do returns its visible result.
type deed struct {
	story string
	do    func(*twin) any
}

// deeds generates the operations of a history.
type deeds struct {
	rand    *rand.Rand
	ctx     context.Context
	begun   time.Time
	made    int
	noted   int
	secrets []signing.Secret
	resends bool // whether single events may be resent; false while the file may still be reopened
}

func liveAsTwins(t *testing.T, seed uint64, path string) {
	files := 0
	open := func() store.Store {
		s, err := bolt.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	twins := []*twin{newTwin(memory.New()), newTwin(open())}
	defer func() {
		twins[0].worker.Close()
		twins[1].worker.Close()
		_ = twins[1].Close()
		report, err := boltops.Verify(path, nil)
		if err = errors.Join(err, report.Err()); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}()
	d := &deeds{rand: rand.New(rand.NewPCG(seed, 3)), ctx: t.Context(), begun: time.Now()}
	for range 4 {
		d.secrets = append(d.secrets, signing.NewSecret())
	}
	var story []string
	both := func(deed deed) {
		story = append(story, fmt.Sprintf("%s  %s", clock(time.Since(d.begun)), deed.story))
		results := [2]any{deed.do(twins[0]), deed.do(twins[1])}
		if diff := cmp.Diff(results[0], results[1], alike); diff != "" {
			t.Fatalf("seed %d: memory and file differ (-memory +file):\n%s\nafter\n%s", seed, diff, strings.Join(story[max(0, len(story)-30):], "\n"))
		}
	}
	reopens := seed%2 == 0
	moves := rand.New(rand.NewPCG(seed, 4)).IntN(150) // operations at which the twins swap contents
	for i := range 300 {
		d.resends = !reopens || i >= 240
		time.Sleep(span(d.rand, time.Millisecond, 90*time.Minute).Truncate(time.Millisecond)) // stores round to milliseconds
		both(d.next())
		if i%5 == 4 {
			both(deed{"looks at all", d.look})
		}
		if i%60 == 59 && i < 240 && reopens {
			both(deed{"gives back all that is claimed", d.release})
			both(d.purge()) // a file that was closed for a long time does not trust the clock
			twins[1].worker.Close()
			if err := twins[1].Close(); err != nil {
				t.Fatal(err)
			}
			twins[1].use(open())
			anew := memory.New() // loses the early due times that a receiver's recovery caused; a file keeps them
			move(t, anew, twins[0].Store)
			twins[0].use(anew)
			story = append(story, "the file is opened anew")
		}
		if reopens && i == moves && i < 240 {
			both(deed{"gives back all that is claimed", d.release})
			files++
			path = fmt.Sprint(path, files)
			movedToFile, movedToMemory := open(), store.Store(memory.New())
			move(t, movedToFile, twins[0].Store)
			move(t, movedToMemory, twins[1].Store)
			twins[1].worker.Close()
			if err := twins[1].Close(); err != nil {
				t.Fatal(err)
			}
			twins[0].use(movedToMemory)
			twins[1].use(movedToFile)
			story = append(story, "what memory has is moved to a file, and what the file has to memory")
			both(deed{"looks at all", d.look})
			moves = i + 60
		}
	}
}

// move copies the contents of a store to an empty one, and checks that both have the same.
func move(t *testing.T, dst, src store.Store) {
	t.Helper()
	if _, err := transfer.Copy(t.Context(), dst, src, transfer.CopyOptions{PageSize: 50}); err != nil {
		t.Fatal(err)
	}
}

// alike defines when results are equal. Times and secrets are compared by value. Any two errors are
// equal, because results contain the kinds of errors (see is).
var alike = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.EquateComparable(scopes.Set{}),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmpopts.IgnoreFields(storetest.Task{}, "Age", "Ref"),
	cmpopts.IgnoreFields(webhooks.Webhook{}, "Version"), // several results may change the health in one step or in several
	cmp.FilterValues(func(a, b error) bool { return a != nil && b != nil }, cmp.Comparer(func(a, b error) bool { return true })),
}

// is returns the name of an error's kind.
func is(err error) string {
	for _, known := range []error{
		apierr.ErrNotFound, apierr.ErrExists, apierr.ErrLimit, apierr.ErrNotFound, apierr.ErrExists, apierr.ErrLimit,
		webhooks.ErrRecovering, store.ErrClosed, errRefused,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if key, ok := errors.AsType[*driver.DuplicateRequestError](err); ok {
		return fmt.Sprint("repeated ", key.ID, key.Fingerprint)
	}
	if webhook, ok := errors.AsType[*driver.DuplicateRequestError](err); ok {
		return fmt.Sprint("repeated ", webhook.ID, webhook.Fingerprint)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

var errRefused = errors.New("refused by the caller")

// A result is the visible result of a call.
type result struct {
	Value any
	Err   string
}

func (d *deeds) account() string         { return pick(d.rand, "a", "b") }
func (d *deeds) some(kind string) string { return fmt.Sprint(kind, d.rand.IntN(12)) }

// fails occasionally returns an error for a callback.
func (d *deeds) fails() error {
	if d.rand.IntN(8) == 0 {
		return errRefused
	}
	return nil
}

// next returns the next operation.
func (d *deeds) next() deed {
	if d.rand.IntN(60) == 0 {
		return d.erase()
	}
	list := []func() deed{
		d.createKey, d.changeKey, d.deleteKey, d.useKey, d.createWebhook, d.createWebhook, d.changeWebhook, d.changeWebhook, d.deleteWebhook, d.takeAuditEntries,
		d.enqueue, d.enqueue, d.enqueue, d.alert, d.scanState, d.entry, d.claim, d.claim, d.claim, d.settle, d.settle, d.redeliver, d.recoverStep, d.advance, d.purge,
	}
	return list[d.rand.IntN(len(list))]()
}

func (d *deeds) hash() driver.Hash {
	var h driver.Hash
	h.Sum[0] = byte(1 + d.rand.IntN(20))
	return h
}

// expiry returns the zero time or one of a few times.
func (d *deeds) expiry() time.Time {
	if days := d.rand.IntN(4); days > 0 {
		return d.begun.Add(time.Duration(days) * day)
	}
	return time.Time{}
}

func (d *deeds) resources() auth.Resources {
	resources, _ := auth.ParseResources(pick(d.rand, someResources...))
	return resources
}

func (d *deeds) options() driver.CreateOptions {
	options := driver.CreateOptions{MaxCount: pick(d.rand, 0, 0, 5), IdempotencyTTL: 6 * time.Hour}
	if d.rand.IntN(3) == 0 {
		options.IdempotencyKey = d.some("request")
	}
	return options
}

func (d *deeds) createKey() deed {
	key := apikeys.Key{Account: d.account(), ID: d.some("key"), Name: d.some("name"), Scopes: scopes.Of(scopes.FilesRead), CreatedAt: time.Now(), Hash: d.hash()}
	key.ExpiresAt, key.Resources = d.expiry(), d.resources()
	key.AllowedNetworks, key.RateLimit, key.Labels = pick(d.rand, "", auth.Networks(wide)), pick(d.rand, 0, slowRate), driver.LabelsOf(map[string]string{"a": d.some("label")})
	options := d.options()
	options.AuditEntry = d.note(key.Account, audit.KeyCreated, key.ID)
	return deed{fmt.Sprint("creates ", key.ID, " of ", key.Account, " for ", options.IdempotencyKey), func(t *twin) any { return is(t.CreateKey(d.ctx, key, options)) }}
}

func (d *deeds) changeKey() deed {
	account, id, hash, expiry, disabled, err := d.account(), d.some("key"), d.hash(), d.expiry(), d.rand.IntN(2) == 0, d.fails()
	note := d.note(account, audit.KeyRotated, id)
	return deed{fmt.Sprint("rotates ", id, " of ", account), func(t *twin) any {
		key, err := t.UpdateKey(d.ctx, account, id, func(k *apikeys.Key, entry *audit.Entry) error {
			*entry = note
			k.Previous, k.PreviousExpiresAt, k.Hash, k.ExpiresAt = k.Hash, d.begun.Add(day), hash, expiry
			k.Disabled, k.Labels = disabled, driver.LabelsOf(map[string]string{"b": id})
			return err
		})
		return result{key, is(err)}
	}}
}

func (d *deeds) deleteKey() deed {
	account, id, err := d.account(), d.some("key"), d.fails()
	note := d.note(account, audit.KeyDeleted, id)
	return deed{fmt.Sprint("deletes ", id, " of ", account), func(t *twin) any {
		return is(t.DeleteKey(d.ctx, account, id, func(apikeys.Key) error { return err }, note))
	}}
}

func (d *deeds) useKey() deed {
	var uses []driver.KeyUse
	for range d.rand.IntN(5) {
		uses = append(uses, driver.KeyUse{Account: d.account(), ID: d.some("key"), Hash: d.hash(), At: time.Now(), Activity: driver.ActivityFrom(netip.MustParseAddr(inWide), time.Now())})
	}
	return deed{fmt.Sprint("notes ", len(uses), " uses"), func(t *twin) any { return is(t.RecordKeyUse(d.ctx, uses)) }}
}

func (d *deeds) createWebhook() deed {
	w := webhooks.Webhook{
		Account: d.account(), URL: "https://" + d.some("host") + ".example.com/", WebhookHealth: driver.WebhookHealth{Active: d.rand.IntN(5) > 0}, CreatedAt: time.Now(),
		Events: slices.Clone(pick(d.rand, alerts.EventTypes(), alerts.EventTypes()[:1], []webhooks.EventType{webhooks.AllEvents})), EventScopes: []scopes.Scope{scopes.FilesRead}, Secret: d.secrets[d.rand.IntN(4)],
	}
	w.Resources = d.resources()
	w.ID = w.Account + d.some("wh") // an ID never belongs to two accounts
	options := d.options()
	with := driver.CreateOptions{MaxCount: options.MaxCount, IdempotencyKey: options.IdempotencyKey, IdempotencyTTL: options.IdempotencyTTL, AuditEntry: d.note(w.Account, audit.WebhookCreated, w.ID)}
	return deed{fmt.Sprint("creates ", w.ID, ", active ", w.Active, ", for ", options.IdempotencyKey), func(t *twin) any { return is(t.CreateWebhook(d.ctx, w, with)) }}
}

func (d *deeds) changeWebhook() deed {
	account, id, active, warned, err := d.account(), d.some("wh"), d.rand.IntN(3) > 0, d.rand.IntN(3) == 0, d.fails()
	note := d.note(account, audit.WebhookChanged, id)
	headers := []webhooks.Header{{Name: "X-Token", Value: d.some("value"), Secret: d.rand.IntN(2) == 0}}[d.rand.IntN(2):]
	schemes := pick(d.rand, nil, []signing.Scheme{signing.V1a})
	until, resources := pick(d.rand, time.Time{}, d.begun.Add(day), webhooks.NoEnd), d.resources()
	return deed{fmt.Sprint("changes ", id, " of ", account, " to active ", active, ", paused until ", until), func(t *twin) any {
		w, err := t.UpdateWebhook(d.ctx, account, account+id, func(w *webhooks.Webhook, entry *audit.Entry) error {
			w.Headers, w.PausedUntil, w.Resources, w.Signatures = headers, until, resources, schemes
			if w.Active, *entry = active, note; warned && !w.FailingSince.IsZero() {
				w.WarnedAt = d.begun.Add(day)
			}
			return err
		})
		return result{w, is(err)}
	}}
}

func (d *deeds) deleteWebhook() deed {
	account, id, err := d.account(), d.some("wh"), d.fails()
	note := d.note(account, audit.WebhookDeleted, id)
	return deed{fmt.Sprint("deletes ", id, " of ", account), func(t *twin) any {
		return is(t.DeleteWebhook(d.ctx, account, account+id, func(webhooks.Webhook) error { return err }, note))
	}}
}

func (d *deeds) event(account string) webhooks.EncodedEvent {
	d.made++
	id := fmt.Sprint("e", d.made-d.rand.IntN(2)*d.rand.IntN(3)) // some IDs occur twice
	return webhooks.EncodedEvent{ID: id, Account: account, Type: pick(d.rand, alerts.EventTypes()...), Scope: pick(d.rand, scopes.FilesRead, scopes.AccountRead), Resource: pick(d.rand, eventResources...), Timestamp: time.Now(), Body: []byte(`{"id":"` + id + `"}`)}
}

func (d *deeds) enqueue() deed {
	event := d.event(d.account())
	return deed{fmt.Sprint("publishes ", event.ID, " for ", event.Account), func(t *twin) any {
		n, err := t.Enqueue(d.ctx, event)
		return result{n, is(err)}
	}}
}

func (d *deeds) alert() deed {
	account, metric, soft, tells := d.account(), pick(d.rand, "series", "another series"), d.rand.IntN(3) == 0, d.rand.IntN(3) == 0
	event, text, err := d.event(account), d.some("state"), d.fails()
	return deed{fmt.Sprint("reports ", metric, " of ", account, ", ", text), func(t *twin) any {
		var seen []any
		n, err := t.UpdateAlert(d.ctx, account, metric, func(step *driver.AlertStep) error {
			seen = []any{string(step.State), step.Due, step.Webhooks()}
			if step.State = []byte(text); tells {
				step.Events = append(step.Events, driver.AlertEvent{EncodedEvent: event})
			}
			step.Deferrable = soft && !tells
			return err
		})
		return result{[]any{n, seen}, is(err)}
	}}
}

func (d *deeds) scanState() deed {
	text, err := d.some("scan"), d.fails()
	return deed{"scans, " + text, func(t *twin) any {
		var seen string
		failed := t.UpdateScan(d.ctx, func(state []byte) ([]byte, error) {
			seen = string(state)
			return []byte(text), err
		})
		return result{seen, is(failed)}
	}}
}

func (d *deeds) entry() deed {
	event := d.event(d.account())
	dedupKeys := []driver.DedupKey{{Key: d.some("notice"), Until: time.Now().Add(day / 4)}, {Key: d.some("other"), Until: time.Now().Add(day)}}
	return deed{fmt.Sprint("tells ", dedupKeys[0].Key, " and ", dedupKeys[1].Key, " of ", event.Account), func(t *twin) any {
		fresh, err := t.UnseenKeys(d.ctx, event.Account, dedupKeys)
		n, err2 := t.EnqueueOnce(d.ctx, event, dedupKeys)
		return result{[]any{fresh, n, is(err2)}, is(err)}
	}}
}

func (d *deeds) claim() deed {
	most, special := pick(d.rand, 1, 3, 1000), map[string]int{}
	if d.rand.IntN(3) == 0 {
		special[d.account()+d.some("wh")] = d.rand.IntN(2)
	}
	return deed{fmt.Sprintf("claims %d a webhook, %v", most, special), func(t *twin) any {
		tasks, err := t.worker.Claim(d.ctx, 1000)
		left := make(map[string]int) // remaining tasks by webhook ID
		var seen []storetest.Task
		for _, task := range tasks {
			id := task.Webhook.ID
			if _, known := left[id]; !known {
				left[id] = most
				if n, ok := special[id]; ok {
					left[id] = n
				}
			}
			if left[id] == 0 {
				t.worker.Postpone(task)
				continue
			}
			left[id]--
			t.tasks[[2]string{id, task.Event.ID}] = task
			seen = append(seen, task)
		}
		slices.SortFunc(seen, func(a, b storetest.Task) int {
			return strings.Compare(a.Webhook.ID+" "+a.Event.ID, b.Webhook.ID+" "+b.Event.ID)
		})
		return result{seen, is(err)}
	}}
}

// settles settles the claimed tasks for which outcome returns true.
func (d *deeds) settles(t *twin, outcome func(storetest.Task) (storetest.Settlement, bool)) any {
	var settlements []storetest.Settlement
	var keys [][2]string
	for key := range t.tasks {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return strings.Compare(a[0]+" "+a[1], b[0]+" "+b[1]) })
	for _, key := range keys {
		if s, ok := outcome(t.tasks[key]); ok {
			settlements = append(settlements, s)
			delete(t.tasks, key)
		}
	}
	stale, err := t.worker.Settle(d.ctx, settlements)
	return result{[]any{len(settlements), stale}, is(err)}
}

func (d *deeds) settle() deed {
	seed := d.rand.Uint64()
	return deed{"settles some", func(t *twin) any {
		r := rand.New(rand.NewPCG(seed, 4))
		return d.settles(t, func(task storetest.Task) (s storetest.Settlement, ok bool) {
			s = storetest.Settlement{Task: task, Attempt: webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now().UTC().Truncate(time.Millisecond), Status: 200}}
			s.Effect = pick(r, storetest.Postpone, driver.Retry, driver.Retry, driver.Deliver, driver.Deliver, driver.GiveUp)
			if s.Effect == driver.Retry || s.Effect == driver.GiveUp {
				s.Attempt.Status, s.Attempt.Class, s.Attempt.Error = 500, webhooks.ClassStatus, "status 500"
			}
			if s.Effect == driver.Retry {
				s.RetryAfter = span(r, time.Second, 3*time.Hour).Truncate(time.Millisecond)
			}
			if s.Effect == driver.GiveUp && r.IntN(6) == 0 {
				s.Deactivate = webhooks.OffGone
			}
			return s, r.IntN(3) > 0
		})
	}}
}

// release releases all claimed tasks.
func (d *deeds) release(t *twin) any {
	return d.settles(t, func(task storetest.Task) (storetest.Settlement, bool) {
		return storetest.Settlement{Task: task, Effect: storetest.Postpone}, true
	})
}

func (d *deeds) redeliver() deed {
	if !d.resends {
		return d.recoverStep()
	}
	account, id, event := d.account(), d.some("wh"), fmt.Sprint("e", d.rand.IntN(d.made+1))
	note := d.note(account, audit.DeliveryRedelivered, id)
	return deed{fmt.Sprint("sends ", event, " again to ", id, " of ", account), func(t *twin) any {
		return is(t.Redeliver(d.ctx, account, account+id, event, note))
	}}
}

func (d *deeds) recoverStep() deed {
	account := d.account()
	recovery := webhooks.Recovery{
		ID: fmt.Sprint("rec", d.rand.IntN(40)), Account: account, WebhookID: account + d.some("wh"), CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
		States: pick(d.rand, []webhooks.DeliveryState{webhooks.Dead, webhooks.Skipped}, []webhooks.DeliveryState{webhooks.Delivered}),
	}
	note := d.note(account, audit.RecoveryStarted, recovery.WebhookID)
	return deed{fmt.Sprint("recovers ", recovery.WebhookID, " by ", recovery.ID), func(t *twin) any {
		if err := t.CreateRecovery(d.ctx, recovery, note); err != nil {
			return is(err)
		}
		found, err := t.RecoveryByID(d.ctx, account, recovery.ID)
		return result{found, is(err)}
	}}
}

func (d *deeds) advance() deed {
	return deed{"advances all recoveries", func(t *twin) any {
		for range 1000 {
			if more, err := t.AdvanceRecovery(d.ctx, 100); err != nil || !more {
				return is(err)
			}
		}
		return "recoveries without end"
	}}
}

func (d *deeds) purge() deed {
	now := time.Now()
	purge := driver.Purge{Payloads: now.Add(-12 * time.Hour), Attempts: now.Add(-16 * time.Hour), EventIDs: now.Add(-16 * time.Hour), DedupKeys: now, AuditEntries: now.Add(-3 * day), Limit: 50}
	return deed{"gives back all that is claimed, and purges", func(t *twin) any {
		d.release(t) // Purge also aborts tasks in progress
		for range 1000 {
			if more, err := t.Purge(d.ctx, purge); err != nil || !more {
				return is(err)
			}
		}
		return "purges without end"
	}}
}

func (d *deeds) erase() deed {
	account := d.account()
	return deed{"erases " + account, func(t *twin) any {
		for range 1000 {
			if erased, more, err := t.EraseAccount(d.ctx, account, 10); err != nil || !more {
				erased.IdempotencyKeys = 0 // stores may remove expired keys at different times
				return result{erased, is(err)}
			}
		}
		return "an erasure without end"
	}}
}

// look returns everything that can be read from a store.
func (d *deeds) look(t *twin) any {
	var seen []any
	see := func(value any, err error) { seen = append(seen, result{value, is(err)}) }
	due, err := t.DueAlerts(d.ctx, 100)
	slices.SortFunc(due, func(a, b driver.AlertSeries) int {
		return strings.Compare(a.Account+" "+a.Name, b.Account+" "+b.Name)
	})
	see(due, err)
	see(backlogOf(d.ctx, t, ""))
	see(pendingAuditEntries(d.ctx, t))
	see(t.OffWebhooks(d.ctx, driver.ListQuery{Limit: 100}))
	see(t.AccountSizes(d.ctx, []string{"b", "a"}))
	see(t.ExpiringKeys(d.ctx, driver.ExpiryQuery{Before: d.begun.Add(3 * day), Limit: 100}))
	for _, account := range []string{"a", "b"} {
		keys, err := t.ListKeys(d.ctx, account, driver.ListQuery{Limit: 100})
		see(keys, err)
		for _, key := range keys {
			found, err := t.KeyByHash(d.ctx, key.Hash)
			see(found, err)
		}
		see(t.ListAuditEntries(d.ctx, account, audit.Query{Limit: 10_000}))
		hooks, err := t.ListWebhooks(d.ctx, account, driver.ListQuery{Limit: 100})
		see(hooks, err)
		for _, hook := range hooks {
			see(backlogOf(d.ctx, t, hook.ID))
			see(d.list(t, account, hook.ID))
		}
		for i := max(0, d.made-40); i <= d.made; i++ {
			list, err := t.EventDeliveries(d.ctx, account, fmt.Sprint("e", i))
			see(dueLater(list), err)
		}
	}
	return seen
}

// note returns the audit entry of the next operation. Some entries are pending for the host.
func (d *deeds) note(account string, action audit.Action, id string) audit.Entry {
	d.noted++
	return audit.Entry{
		ID: fmt.Sprintf("n%06d", d.noted), Account: account, At: time.Now(), Action: action, Target: audit.Target{Kind: audit.TargetKey, ID: id},
		Pending: d.rand.IntN(2) == 0,
	}
}

// allPending returns the pending audit entries of all accounts.
func allPending(ctx context.Context, t *twin) (list []audit.Numbered, err error) {
	accounts, err := t.PendingAccounts(ctx, "", 10_000)
	for _, account := range append(accounts, "") {
		of, failed := t.PendingAuditEntries(ctx, account, 10_000)
		list, err = append(list, of...), errors.Join(err, failed)
	}
	return list, err
}

// pendingAuditEntries returns the pending audit entries in a fixed order, because stores may add
// the entries of several webhooks from one settlement in any order.
func pendingAuditEntries(ctx context.Context, t *twin) (any, error) {
	list, err := allPending(ctx, t)
	seen := make(map[string][]string)
	for _, n := range list {
		seen[n.Entry.Target.ID] = append(seen[n.Entry.Target.ID], n.Entry.ID)
	}
	return seen, err
}

// takeAuditEntries takes the pending audit entries of some targets.
func (d *deeds) takeAuditEntries() deed {
	most := d.rand.IntN(10)
	return deed{fmt.Sprint("takes audit entries of keys below key", most), func(t *twin) any {
		list, err := allPending(d.ctx, t)
		if err != nil {
			return is(err)
		}
		var numbers []uint64
		for _, n := range list {
			if n.Entry.Target.ID < fmt.Sprint("key", most) {
				numbers = append(numbers, n.Number)
			}
		}
		return result{len(numbers), is(t.TakeAuditEntries(d.ctx, numbers))}
	}}
}

// backlogOf returns the number of pending deliveries and, if these can be claimed, whether one is
// due. A disabled webhook may count as enabled until one of its deliveries is loaded.
func backlogOf(ctx context.Context, t *twin, webhook string) (any, error) {
	backlog, err := t.worker.Backlog(ctx, webhook)
	if webhook == "" {
		return backlog.Pending, err
	}
	if w, _ := t.WebhookByID(ctx, webhook[:1], webhook); !w.Claimable() {
		return backlog.Pending, err
	}
	return []any{backlog.Pending, backlog.OldestDue.IsZero()}, err
}

// dueLater clears the due times of due deliveries, because stores may keep or change the due time
// of a resent delivery.
func dueLater(list []webhooks.Delivery) []webhooks.Delivery {
	for i := range list {
		if !list[i].NextAttemptAt.After(time.Now()) {
			list[i].NextAttemptAt = time.Time{}
		}
	}
	return list
}

// list returns all pages of a webhook's deliveries.
func (d *deeds) list(t *twin, account, webhook string) (all []webhooks.Delivery, err error) {
	query := webhooks.DeliveryQuery{Limit: 50}
	for range 1000 {
		page, err := t.ListDeliveries(d.ctx, account, webhook, query)
		all = append(all, page.Deliveries...)
		if query.After = page.Next; err != nil || page.Next == "" {
			return dueLater(all), err
		}
	}
	return nil, errors.New("pages without end")
}
