package queue_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// A modelStore keeps deliveries of one account as a store does, in small. It is for one
// goroutine.
type modelStore struct {
	feed  webhooks.Scheduler // nil: nothing is reported
	hooks map[string]*webhooks.Webhook
	rows  map[webhooks.DeliveryRef]*modelRow

	loads     int
	conflicts int    // how many changes of health are to conflict: a person renames the webhook before
	err       error  // of Settle
	unread    bool   // Load answers nothing else
	during    func() // what happens before Load and Settle return, after they have read and stored
	notices   []string
}

type modelRow struct {
	pending          bool
	due              time.Time
	attempts, before int
}

var account = "acct"

func newModel(ids ...string) *modelStore {
	s := &modelStore{hooks: make(map[string]*webhooks.Webhook), rows: make(map[webhooks.DeliveryRef]*modelRow), during: func() {}}
	for _, id := range ids {
		w := &webhooks.Webhook{ID: id, Account: account, URL: "https://" + id, Version: 1}
		w.Active = true
		s.hooks[id] = w
	}
	return s
}

// over returns claims that a feed reports to, which is the store's scheduler or goes before it.
func (s *modelStore) over(feed func(webhooks.Scheduler) webhooks.Scheduler) *queue.Claims {
	return queue.Over(s, queue.Options{Attach: func(_ context.Context, to webhooks.Scheduler) (func(), error) {
		if s.feed = to; feed != nil {
			s.feed = feed(to)
		}
		refs := slices.SortedFunc(maps.Keys(s.rows), func(a, b webhooks.DeliveryRef) int { return cmp.Compare(a.Number, b.Number) })
		for _, ref := range refs {
			s.report(ref, s.rows[ref])
		}
		to.Trouble(nil)
		return func() { s.feed = nil }, nil
	}})
}

func (s *modelStore) report(ref webhooks.DeliveryRef, row *modelRow) {
	if s.feed != nil && row.pending {
		s.feed.Add([]webhooks.PendingDelivery{{
			Number: ref.Number, Webhook: s.hooks[ref.WebhookID], Due: row.due, Attempts: row.attempts, Before: row.before,
		}})
	}
}

// enqueue makes a delivery pending, due now: a new one, or one that was settled.
func (s *modelStore) enqueue(ref webhooks.DeliveryRef) {
	row := s.rows[ref]
	if row == nil {
		row = new(modelRow)
		s.rows[ref] = row
	}
	row.pending, row.due, row.before = true, time.Now(), row.attempts
	s.report(ref, row)
}

// update changes a webhook as a person does.
func (s *modelStore) update(id string, change func(*webhooks.Webhook)) {
	w := *s.hooks[id]
	change(&w)
	w.Version++
	s.hooks[id] = &w
	if s.feed != nil {
		s.feed.Webhook(&w)
	}
}

func (s *modelStore) Deliver(context.Context, webhooks.Scheduler) error { panic("it is attached") }

func (s *modelStore) Load(_ context.Context, refs []webhooks.DeliveryRef) ([]webhooks.LoadedDelivery, error) {
	s.loads++
	found := make([]webhooks.LoadedDelivery, len(refs))
	for i, ref := range refs {
		row, w := s.rows[ref], s.hooks[ref.WebhookID]
		switch {
		case s.unread:
			found[i].State = webhooks.Unread
			continue
		case row == nil || !row.pending || w == nil:
			continue
		}
		l := webhooks.LoadedDelivery{State: webhooks.Passive, Webhook: w, Attempts: row.attempts, Before: row.before, Due: row.due}
		if w.Claimable() {
			l.State = webhooks.Ready
		}
		l.Event.ID = fmt.Sprint(ref.Number)
		found[i] = l
	}
	s.during()
	return found, nil
}

func (s *modelStore) Settle(_ context.Context, results []webhooks.AttemptResult, health []webhooks.HealthChange) (out webhooks.Settled, err error) {
	if s.err != nil {
		return out, s.err
	}
	for i, r := range results {
		row := s.rows[r.DeliveryRef]
		if row == nil || !row.pending || row.attempts >= r.Attempt.Number {
			out.Stale = append(out.Stale, i)
			continue
		}
		row.attempts, row.pending = r.Attempt.Number, r.Outcome == webhooks.Retry
		row.due = time.Now().Add(r.RetryAfter)
	}
	for i, h := range health {
		if s.conflicts > 0 {
			s.conflicts--
			s.update(h.WebhookID, func(w *webhooks.Webhook) { w.Events = append(w.Events, "another") })
		}
		if w := s.hooks[h.WebhookID]; w == nil || w.Version != h.Version {
			out.Conflicts = append(out.Conflicts, i)
			continue
		}
		for _, n := range h.Notices {
			s.notices = append(s.notices, n.ID)
		}
		s.update(h.WebhookID, func(w *webhooks.Webhook) { w.WebhookHealth = h.Health })
	}
	s.during()
	return out, nil
}

func (s *modelStore) Unreported(context.Context, string) (b webhooks.Backlog, _ error) {
	if s.feed == nil {
		for _, row := range s.rows {
			if row.pending {
				b.Pending++
			}
		}
	}
	return b, nil
}

func (s *modelStore) Ping(context.Context) error { return nil }

func (s *modelStore) WebhookByID(_ context.Context, _, id string) (webhooks.Webhook, error) {
	if w := s.hooks[id]; w != nil {
		return *w, nil
	}
	return webhooks.Webhook{}, webhooks.ErrNotFound
}

// A noisyFeed keeps what is reported, each report up to three times, and hands it on late, in
// random order.
type noisyFeed struct {
	webhooks.Scheduler
	random *rand.Rand
	late   []func()
}

func (n *noisyFeed) keep(report func()) {
	for range 1 + n.random.IntN(3) {
		n.late = append(n.late, report)
	}
}

func (n *noisyFeed) Add(list []webhooks.PendingDelivery) {
	list = slices.Clone(list)
	n.keep(func() { n.Scheduler.Add(list) })
}

func (n *noisyFeed) Nudge(ref webhooks.DeliveryRef) { n.keep(func() { n.Scheduler.Nudge(ref) }) }

func (n *noisyFeed) Webhook(w *webhooks.Webhook) { n.keep(func() { n.Scheduler.Webhook(w) }) }

// handOn hands one report on.
func (n *noisyFeed) handOn() {
	if len(n.late) == 0 {
		return
	}
	i := len(n.late) - 1
	if n.random.IntN(2) == 0 {
		i = n.random.IntN(len(n.late))
	}
	report := n.late[i]
	n.late = slices.Delete(n.late, i, i+1)
	report()
}

// Whatever a store reports twice, late or in another order: each delivery is sent until it is
// settled, never in two attempts at a time, and nothing that is gone stays in the queue.
func TestOver_NoisyFeed_LosesAndDoublesNothing(t *testing.T) {
	for seed := range uint64(1500) {
		synctest.Test(t, func(t *testing.T) { noisyRun(t, seed) })
	}
}

func noisyRun(t *testing.T, seed uint64) {
	ctx, r := t.Context(), rand.New(rand.NewPCG(seed, 1))
	ids := []string{"a", "b"}
	s := newModel(ids...)
	for i := range 6 {
		s.enqueue(webhooks.DeliveryRef{WebhookID: ids[i%2], Number: uint64(i)})
	}
	noise := &noisyFeed{random: r}
	c := s.over(func(to webhooks.Scheduler) webhooks.Scheduler { noise.Scheduler = to; return noise })
	defer c.Close()
	running := make(map[webhooks.DeliveryRef]webhooks.Task)
	pick := func() webhooks.DeliveryRef {
		i := r.IntN(6)
		return webhooks.DeliveryRef{WebhookID: ids[i%2], Number: uint64(i)}
	}
	calm := false // nothing but the claims goes on
	// settle ends an attempt.
	settle := func() {
		refs := slices.SortedFunc(maps.Keys(running), func(a, b webhooks.DeliveryRef) int { return cmp.Compare(a.Number, b.Number) })
		if len(refs) > 0 {
			ref := refs[r.IntN(len(refs))]
			task := running[ref]
			delete(running, ref)
			end := webhooks.Settlement{Task: task, Outcome: webhooks.Outcome(r.IntN(4))}
			if calm {
				end.Outcome = webhooks.Deliver
			}
			end.Attempt = webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now()}
			end.RetryAfter = time.Duration(r.IntN(20)) * time.Millisecond
			if _, err := c.SettleDeliveries(ctx, []webhooks.Settlement{end}); err != nil {
				t.Fatal(err)
			}
		}
	}
	resend := func() {
		if ref := pick(); s.rows[ref].pending {
			s.rows[ref].due = time.Now()
			s.feed.Nudge(ref)
		} else {
			s.enqueue(ref)
		}
	}
	s.during = func() {
		for range r.IntN(3) {
			if !calm {
				resend()
			}
			noise.handOn()
		}
	}
	step := func() {
		time.Sleep(time.Millisecond)
		switch k := r.IntN(9); {
		case k <= 1:
			noise.handOn()
		case k <= 3:
			tasks, _, err := c.ClaimDeliveries(ctx, webhooks.Claim{Limit: 1 + r.IntN(3), Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range tasks {
				var number uint64
				fmt.Sscan(task.Event.ID, &number)
				ref := webhooks.DeliveryRef{WebhookID: task.Webhook.ID, Number: number}
				if _, twice := running[ref]; twice {
					t.Fatalf("seed %d: two attempts at %v at a time", seed, ref)
				}
				running[ref] = task
			}
		case k <= 5:
			settle()
		case calm:
		case k == 6:
			resend()
		case k == 7: // ended by Purge, which reports nothing
			if r.IntN(4) == 0 {
				s.rows[pick()].pending = false
			}
		default:
			s.update(ids[r.IntN(2)], func(w *webhooks.Webhook) { w.Active = !w.Active })
		}
	}
	if _, _, err := c.ClaimDeliveries(ctx, webhooks.Claim{Limit: 1, Lease: time.Hour}); err != nil {
		t.Fatal(err) // it attaches
	}
	for range 300 {
		step()
	}
	for _, id := range ids {
		s.update(id, func(w *webhooks.Webhook) { w.Active = true })
	}
	calm = true
	for range 1000 {
		step()
	}
	for ref, row := range s.rows {
		if row.pending {
			t.Fatalf("seed %d: %v is pending for ever: %+v", seed, ref, *row)
		}
	}
	if b, err := c.Backlog(ctx, ""); err != nil || b.Pending != 0 {
		t.Fatalf("seed %d: backlog %+v, error %v; want nothing pending", seed, b, err)
	}
}
