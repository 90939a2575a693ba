package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// A flood is the worst load that one customer can cause through the API for some minutes. The tests
// limit the delays that it causes for other customers.
type flood struct {
	*actor
	kind  string
	begin time.Duration

	mu   sync.Mutex
	told map[string]bool // IDs of the quiet customer's keys of which the host was notified
}

// Kinds of floods.
const (
	floodResends = "resends" // redeliveries in a loop, to receivers that hang
	floodRefused = "refused" // many keys, and the host's Notify fails for each
	floodRenames = "renames" // thousands of renames of one key
	floodNames   = "names"   // ten accounts with receivers whose name servers are dead
)

const (
	floodAccount = "flood"
	quietAccount = "quiet"
	floodLasts   = 3 * time.Minute
	notifyTakes  = 4 * time.Millisecond // the duration of Notify for each audit entry of the flood
)

func newFlood(w *world) *flood {
	return &flood{
		actor: newActor(&account{world: w, id: floodAccount}, "flood", 6),
		kind:  w.plan.flood, begin: w.plan.floodAt, told: make(map[string]bool),
	}
}

// live runs the flood of this era, if there is one.
func (f *flood) live(ctx context.Context) {
	if f.kind == "" || f.begin < f.world.era.from || f.begin+floodLasts > f.world.era.to {
		return
	}
	time.Sleep(f.begin - f.world.now())
	f.tell(nil, "begins: %s", f.kind)
	ctx, cancel := context.WithTimeout(ctx, floodLasts)
	defer cancel()
	var all sync.WaitGroup
	switch f.kind {
	case floodResends:
		all.Go(func() { f.resends(ctx) })
		all.Go(func() { f.repairsBeside(ctx) })
	case floodNames:
		all.Go(func() { f.deadNames(ctx) })
		for _, a := range f.world.accounts {
			all.Go(func() { f.publishesBeside(ctx, a) })
		}
	case floodRefused:
		all.Go(func() { f.createsKeys(ctx, 200) })
		all.Go(func() { f.createsBeside(ctx) })
	case floodRenames:
		all.Go(func() { f.renames(ctx, 3000) })
		all.Go(func() { f.createsBeside(ctx) })
	}
	all.Wait()
	f.tell(nil, "ends")
}

// insist calls do until it returns nil. It returns false if ctx ends first.
func (f *flood) insist(ctx context.Context, do func(h *host) error) bool {
	for ctx.Err() == nil && !f.world.broken() {
		if do(f.world.reach()) == nil {
			return true
		}
		time.Sleep(time.Second)
	}
	return false
}

// resends redelivers events in a loop to webhooks whose receivers hang.
func (f *flood) resends(ctx context.Context) {
	const hooks, events = 8, 8
	made := make(map[string]string) // IDs by name
	for i := range hooks {
		name := fmt.Sprint("f", i)
		f.world.receivers.add(name+"-1", floodAccount, hanging)
		f.insist(ctx, func(h *host) error {
			hook, err := h.api.Webhooks.Create(ctx, floodAccount, webhooks.CreateParams{
				URL: "https://" + name + "-1.example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow},
			})
			if err == nil {
				made[name] = hook.ID
			}
			return err
		})
		f.world.ledger.sendsAgain(name, "")
	}
	for i := range events {
		f.insist(ctx, func(h *host) error {
			return h.api.Webhooks.Publish(ctx, webhooks.Event{ID: fmt.Sprint("flood", i), Account: floodAccount, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}})
		})
	}
	for i := 0; ctx.Err() == nil && !f.world.broken(); i++ {
		for _, id := range made {
			_ = f.world.reach().api.Webhooks.Redeliver(ctx, floodAccount, id, fmt.Sprint("flood", i%events))
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, id := range made {
		f.deleteWebhook(ctx, floodAccount, id)
	}
}

// repairsBeside breaks and repairs the receiver of another customer, and then redelivers an event.
// That attempt needs one of the slots for requested attempts.
func (f *flood) repairsBeside(ctx context.Context) {
	const name, receiver, perRound = "q", "q-1", 8
	w := f.world
	w.receivers.add(receiver, quietAccount, failing)
	w.ledger.sendsAgain(name, "")
	var id string
	if !f.insist(ctx, func(h *host) error {
		hook, err := h.api.Webhooks.Create(ctx, quietAccount, webhooks.CreateParams{
			URL: "https://" + receiver + ".example.com/", Events: []webhooks.EventType{alerts.TypeBalanceLow},
		})
		id = hook.ID
		return err
	}) {
		return
	}
	for round := 0; ctx.Err() == nil && !w.broken(); round++ {
		w.receivers.setMood(receiver, failing)
		event := ""
		for i := range perRound { // so that the circuit breaker opens
			event = fmt.Sprintf("quiet%d-%d", round, i)
			f.insist(ctx, func(h *host) error {
				return h.api.Webhooks.Publish(ctx, webhooks.Event{ID: event, Account: quietAccount, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}})
			})
			time.Sleep(time.Second)
		}
		w.receivers.setMood(receiver, well)
		began := w.now()
		since, calm := w.calmSince()
		err := w.reach().api.Webhooks.Redeliver(ctx, quietAccount, id, event)
		w.tell("person/quiet", []string{name, event, floodAccount}, "has %s sent to %s again: %v", event, name, err)
		if err != nil || !calm {
			continue
		}
		time.Sleep(promptly)
		if again, still := w.calmSince(); still && again == since && !w.ledger.triedSince(name, event, began) {
			w.breach("one customer's flood holds nobody up", []string{name, event, floodAccount}, "%s is not sent to %s again within %v", event, name, promptly)
		}
	}
	f.deleteWebhook(ctx, quietAccount, id)
}

// deadNames creates webhooks in ten accounts whose receivers' name servers are dead, and restarts
// the host, so that it has no cached addresses.
func (f *flood) deadNames(ctx context.Context) {
	const accounts, hooks = 10, 20
	made := make(map[string][]string) // IDs by account
	for i := range accounts {
		account := fmt.Sprint(floodAccount, i)
		for j := range hooks {
			f.insist(ctx, func(h *host) error {
				hook, err := h.api.Webhooks.Create(ctx, account, webhooks.CreateParams{
					URL: fmt.Sprintf("https://%s%d.%d.example.com/", deadName, i, j), Events: []webhooks.EventType{alerts.TypeBalanceLow},
				})
				if err == nil {
					made[account] = append(made[account], hook.ID)
				}
				return err
			})
		}
	}
	f.world.restart(strikeStop)
	for i := 0; ctx.Err() == nil && !f.world.broken(); i++ {
		for account := range made {
			_ = f.world.reach().api.Webhooks.Publish(ctx, webhooks.Event{Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}})
		}
		time.Sleep(10 * time.Second)
	}
	for account, ids := range made {
		for _, id := range ids {
			f.deleteWebhook(ctx, account, id)
		}
	}
}

const deadName = "dead"

func isDeadName(host string) bool { return strings.HasPrefix(host, deadName) }

// publishesBeside publishes events of another customer from time to time. world.punctual and
// world.arrivesInTime check their attempts.
func (f *flood) publishesBeside(ctx context.Context, a *account) {
	for ctx.Err() == nil && !f.world.broken() {
		e := f.world.events.add(a)
		a.publisher.publishOne(ctx, e, -1)
		time.Sleep(7 * time.Second)
	}
}

// deleteWebhook deletes a webhook that is no longer needed.
func (f *flood) deleteWebhook(ctx context.Context, account, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
	defer cancel()
	f.insist(ctx, func(h *host) error {
		if err := h.api.Webhooks.Delete(ctx, account, id, webhooks.DeleteParams{}); !errors.Is(err, apierr.ErrNotFound) {
			return err
		}
		return nil
	})
}

// createsKeys creates keys whose notifications the host rejects.
func (f *flood) createsKeys(ctx context.Context, n int) {
	for range n {
		f.insist(ctx, func(h *host) error {
			_, _, err := h.api.Keys.Create(ctx, floodAccount, apikeys.CreateParams{Name: "flood", Scopes: scopes.Specified()})
			return err
		})
	}
}

// renames renames one key repeatedly.
func (f *flood) renames(ctx context.Context, n int) {
	var id string
	f.insist(ctx, func(h *host) error {
		key, _, err := h.api.Keys.Create(ctx, floodAccount, apikeys.CreateParams{Name: "flood", Scopes: scopes.Specified()})
		id = key.ID
		return err
	})
	for i := range n {
		f.insist(ctx, func(h *host) error {
			name := fmt.Sprint("flood ", i)
			_, err := h.api.Keys.Update(ctx, floodAccount, id, apikeys.UpdateParams{Name: &name})
			return err
		})
	}
}

// createsBeside creates keys of another customer from time to time, and checks that the host is
// notified of them in time.
func (f *flood) createsBeside(ctx context.Context) {
	w := f.world
	for ctx.Err() == nil && !w.broken() {
		time.Sleep(5 * time.Second)
		began := w.now()
		since, calm := w.calmSince()
		key, _, err := w.reach().api.Keys.Create(ctx, quietAccount, apikeys.CreateParams{Name: "quiet", Scopes: scopes.Specified()})
		w.tell("person/quiet", []string{floodAccount}, "creates %s: %v", key.ID, err)
		// A killed process holds the notifier's lease for another minute.
		if err != nil || !calm || began-since < 2*aftermath {
			continue
		}
		time.Sleep(notifiedSoon)
		f.mu.Lock()
		told := f.told[key.ID]
		f.mu.Unlock()
		if again, still := w.calmSince(); still && again == since && !told {
			w.breach("one customer's flood holds nobody up", []string{floodAccount}, "the host is not notified of %s within %v", key.ID, notifiedSoon)
		}
	}
}

// notifiedSoon is the maximum delay until the host is notified, regardless of other customers. The
// notifier polls for new entries once a second.
const notifiedSoon = 2500 * time.Millisecond

var errNotNow = errors.New("this audit entry is not taken")

// notify is the host's Notify.
func (h *host) notify(ctx context.Context, n audit.Entry) error {
	if h.store.isDead() {
		return errDead
	}
	f := h.world.flood
	if n.Account == floodAccount && !h.world.ended.Load() {
		if f.kind == floodRefused {
			return errNotNow
		}
		time.Sleep(notifyTakes)
	}
	if n.Account == quietAccount {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told[n.Target.ID] = true
	}
	return nil
}

// judge checks that the host was notified of every audit entry of the quiet customer.
func (f *flood) judge(ctx context.Context, s store.Store) {
	accounts, err := s.PendingAccounts(ctx, "", 10)
	if err != nil || len(accounts) > 0 {
		f.world.breach("the host is notified of what happened", accounts, "audit entries of accounts %v are pending, %v", accounts, err)
	}
}
