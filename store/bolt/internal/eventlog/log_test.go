package eventlog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A modelEvent is the expected state of an event.
type modelEvent struct {
	account, id string
	first       uint64           // number of the first delivery
	deliveries  []*modelDelivery // in ascending order of their numbers
}

type modelDelivery struct {
	event    *modelEvent
	index    int
	webhook  string
	state    driver.DeliveryState
	attempts int
}

func (d *modelDelivery) ref() driver.DeliveryRef {
	return driver.DeliveryRef{WebhookID: d.webhook, Number: d.event.first + uint64(d.index)}
}

// A model makes random steps, and records the expected contents of the log.
type model struct {
	random *rand.Rand
	events []*modelEvent
	ids    int
}

// The test publishes events, settles deliveries, makes them pending again and erases accounts at
// random. A commit has many steps. Some commits are first undone and then repeated. Sometimes the
// test opens the file again.
func TestLog_RandomSteps_MatchesModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	l := openLog(t, path)
	err := l.db.Update(func(tx *bbolt.Tx) error {
		for _, account := range []string{"a", "b"} {
			for i := range 3 {
				if err := tx.Bucket(schema.WebhookIDs).Put(fmt.Append(nil, account, i), []byte(account)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &model{random: rand.New(rand.NewPCG(1, 2))}
	seen := make(map[driver.DeliveryState]int)
	for commit := range 200 {
		var steps []func(*eventlog.Step) error
		for range 1 + m.random.IntN(40) {
			if step := m.step(t, l); step != nil {
				steps = append(steps, step)
			}
		}
		if commit%7 == 3 {
			steps = append(steps, publishAndFail(l, "undone"))
		}
		if err := errors.Join(boltfault.Together(t.Context(), l.steps.Run, steps...)...); err != nil && !errors.Is(err, errStep) {
			t.Fatal(err)
		}
		if commit%48 == 47 {
			l.erase(t, "b")
			m.erase("b")
		}
		if commit%20 == 19 {
			if err := l.close(); err != nil {
				t.Fatal(err)
			}
			l = openLog(t, path)
		}
		if commit%4 == 3 {
			m.check(t, l, seen)
		}
		if t.Failed() {
			t.Fatalf("commit %d", commit)
		}
	}
	for _, state := range []driver.DeliveryState{driver.Pending, driver.Delivered, driver.Dead, driver.Skipped} {
		if seen[state] == 0 {
			t.Errorf("coverage precondition failed: no delivery was %s", state)
		}
	}
}

// step returns a random step.
func (m *model) step(t *testing.T, l *logFile) func(*eventlog.Step) error {
	if m.random.IntN(3) == 0 || len(m.events) == 0 {
		return m.publish(l)
	}
	e := m.events[m.random.IntN(len(m.events))]
	if len(e.deliveries) == 0 {
		return nil
	}
	d := e.deliveries[m.random.IntN(len(e.deliveries))]
	if d.state != driver.Pending {
		if m.random.IntN(4) > 0 {
			return nil
		}
		d.state = driver.Pending
		p := record.Pending{Due: time.Now(), Attempts: d.attempts, Before: d.attempts}
		return func(s *eventlog.Step) error {
			if err := s.Flush(); err != nil { // the number may belong to the open segment
				return err
			}
			return s.MakePending(d.webhook, d.ref().Number, p)
		}
	}
	result := driver.AttemptResult{
		Effect:  []driver.Effect{driver.Deliver, driver.Retry, driver.GiveUp}[m.random.IntN(3)],
		Attempt: driver.Attempt{Number: d.attempts + 1, StartedAt: time.Now(), Status: 200}, RetryAfter: time.Second,
	}
	counts := d.attempts == 0 || m.random.IntN(8) > 0
	if !counts {
		result.Attempt.Number--
	} else {
		d.attempts++
		switch result.Effect {
		case driver.Deliver:
			d.state = driver.Delivered
		case driver.GiveUp:
			d.state = driver.Dead
		}
	}
	return func(s *eventlog.Step) error {
		if err := s.Flush(); err != nil {
			return err
		}
		result.DeliveryRef = d.ref()
		stale, err := s.Settle([]driver.AttemptResult{result}, func(string) bool { return true })
		if len(stale) == 0 != counts {
			t.Errorf("attempt %d at %+v: stale %t, want %t", result.Attempt.Number, result.DeliveryRef, len(stale) > 0, !counts)
		}
		return err
	}
}

// publish returns a step that publishes an event to some webhooks of an account.
func (m *model) publish(l *logFile) func(*eventlog.Step) error {
	m.ids++
	e := &modelEvent{account: []string{"a", "b"}[m.random.IntN(2)], id: fmt.Sprint("evt_", m.ids)}
	var to [2][]string // active and inactive webhooks
	states := [2]driver.DeliveryState{driver.Pending, driver.Skipped}
	for i := range 3 {
		if n := m.random.IntN(3); n < len(to) {
			to[n] = append(to[n], fmt.Sprint(e.account, i))
		}
	}
	for i, list := range to {
		for _, webhook := range list {
			e.deliveries = append(e.deliveries, &modelDelivery{event: e, index: len(e.deliveries), webhook: webhook, state: states[i]})
		}
	}
	m.events = append(m.events, e)
	encoded := driver.EncodedEvent{
		ID: e.id, Account: e.account, Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte(e.id + strings.Repeat("x", m.random.IntN(2000))),
	}
	return func(s *eventlog.Step) (err error) {
		e.first, err = s.Publish(l.NewEvent(&encoded), to[0], to[1])
		return err
	}
}

// erase removes the events of an account from the model.
func (m *model) erase(account string) {
	var kept []*modelEvent
	for _, e := range m.events {
		if e.account != account {
			kept = append(kept, e)
		}
	}
	m.events = kept
}

// check compares the log with the model.
func (m *model) check(t *testing.T, l *logFile, seen map[driver.DeliveryState]int) {
	t.Helper()
	var found []eventlog.Found
	for _, e := range m.events {
		found = append(found, l.Find(e.account, e.id))
	}
	got, want := make(map[string]string), make(map[string]string)
	gotPending, wantPending := make(map[driver.DeliveryRef]int), make(map[driver.DeliveryRef]int)
	err := l.db.View(func(tx *bbolt.Tx) error {
		v := l.View(tx)
		for i, e := range m.events {
			event, err := v.Event(found[i])
			if err != nil {
				return fmt.Errorf("%s: %w", e.id, err)
			}
			if body := string(v.Body(&event)); !strings.HasPrefix(body, e.id) {
				return fmt.Errorf("%s has the body %.20q", e.id, body)
			}
			deliveries, err := v.Deliveries(&event)
			if err != nil {
				return err
			}
			for _, d := range deliveries {
				got[e.id+" "+d.WebhookID] = fmt.Sprint(d.State, len(d.Attempts))
			}
			for _, d := range e.deliveries {
				seen[d.state]++
				want[e.id+" "+d.webhook] = fmt.Sprint(d.state, d.attempts)
				if d.state == driver.Pending {
					wantPending[d.ref()] = d.attempts
				}
			}
		}
		r := eventlog.PendingReader{View: v, Now: time.Now(), Visit: func(webhook []byte, d driver.PendingDelivery) {
			gotPending[driver.DeliveryRef{WebhookID: string(webhook), Number: d.Number}] = d.Attempts
		}}
		for _, bucket := range []int{eventlog.AsPublished, eventlog.Attempted} {
			if rest := r.Read(bucket, eventlog.Range{Last: 1 << 40}); !rest.IsEmpty() {
				return fmt.Errorf("the numbers %v were not read", rest)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantPending, gotPending); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
}
