package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// A publisher is the part of the host that publishes events and reports usage for an account.
type publisher struct {
	*actor
	periods  int
	low      bool // the balance is low
	fallen   int  // number of times the balance has fallen
	files    int
	reported []report
}

// A report is an acknowledged report that must have caused an alert.
type report struct {
	kind   webhooks.EventType
	period string // or the file's ID
}

// events holds the events that were published for all accounts.
type events struct {
	world *world
	mu    sync.Mutex
	list  []*event
}

// An event is a published event.
type event struct {
	id       string
	resource string
	account  *account
	from, to time.Duration // the start of the first call, and the time of acknowledgement
	acked    bool
	stored   bool
}

func newEvents(w *world) *events { return &events{world: w} }

func (e *events) add(a *account) *event {
	e.mu.Lock()
	defer e.mu.Unlock()
	one := &event{id: fmt.Sprint("e", len(e.list)+1), resource: eventResources[len(e.list)%3], account: a, from: e.world.now()}
	e.list = append(e.list, one)
	return one
}

// some returns the ID of a recent acknowledged event of the account.
func (e *events) some(r *rand.Rand, account string) (id string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for range 20 {
		if len(e.list) == 0 {
			break
		}
		if one := e.list[len(e.list)-1-r.IntN(min(len(e.list), 20))]; one.account.id == account && one.acked {
			return one.id, true
		}
	}
	return "", false
}

// acknowledged returns when an event was acknowledged; ok is false if it was not.
func (e *events) acknowledged(id string) (at time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one := e.find(id)
	return one.to, one.acked
}

// resource returns the resource of an event; empty means none.
func (e *events) resource(id string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.find(id).resource
}

// find returns the published event with that ID, or a zero event if there is none. Alerts, for
// example, are not in the list.
func (e *events) find(id string) *event {
	var n int
	if _, err := fmt.Sscanf(id, "e%d", &n); err != nil || n < 1 || n > len(e.list) {
		return new(event)
	}
	return e.list[n-1]
}

func (p *publisher) live(ctx context.Context, share float64) {
	for !p.account.subscriber.settled.Load() {
		time.Sleep(time.Second)
	}
	p.paced(100, share, func() {
		switch n := p.rand.IntN(20); {
		case n < 9:
			p.publish(ctx, 1)
		case n < 13:
			p.publish(ctx, 2+p.rand.IntN(5))
		case n < 15:
			p.bandwidth(ctx)
		case n < 18:
			p.balance(ctx)
		default:
			p.file(ctx)
		}
	})
}

// publish publishes n events in one call.
func (p *publisher) publish(ctx context.Context, n int) {
	undo := p.beset("Enqueue")
	var all sync.WaitGroup
	for range n {
		call, end, looks := p.context(ctx)
		e := p.world.events.add(p.account)
		all.Go(func() {
			defer end()
			p.publishOne(call, e, looks)
		})
	}
	all.Wait()
	undo()
}

func (p *publisher) publishOne(ctx context.Context, e *event, looks int) {
	data := alerts.TransactionsLimitReached{Used: 1, Limit: 1, Period: e.id}
	err := p.world.reach().api.Webhooks.Publish(ctx, webhooks.Event{ID: e.id, Account: p.account.id, Resource: e.resource, Data: data})
	now := p.world.now()
	p.tell([]string{e.id}, "publishes %s, context of %d looks: %v", e.id, looks, err)
	found := true
	p.world.truth(func(ctx context.Context, s store.Store) {
		_, err := s.EventDeliveries(ctx, p.account.id, e.id)
		if found = err == nil; err != nil && !errors.Is(err, apierr.ErrNotFound) {
			p.world.breach("the store can be asked", nil, "EventDeliveries: %v", err)
		}
	})
	if err == nil && !found {
		p.world.breach("acknowledged is done", []string{e.id}, "%s was published, and is not there", e.id)
	}
	p.world.events.mu.Lock()
	defer p.world.events.mu.Unlock()
	e.to, e.acked, e.stored = now, err == nil, found
}

// untilAcked repeats a call until it is acknowledged.
func (p *publisher) untilAcked(ctx context.Context, what, method string, do func(ctx context.Context, service *alerts.AlertService) error) bool {
	for try := range 200 {
		call, end, looks := p.context(ctx)
		undo := func() {}
		if try < 3 {
			undo = p.beset(method)
		}
		err := do(call, p.world.reach().api.Alerts)
		undo()
		end()
		p.tell(nil, "reports %s, context of %d looks: %v", what, looks, err)
		if err == nil {
			return true
		}
		time.Sleep(time.Minute)
	}
	return false
}

func (p *publisher) bandwidth(ctx context.Context) {
	p.periods++
	period := fmt.Sprintf("period-%06d", p.periods)
	if p.untilAcked(ctx, "bandwidth of "+period, "UpdateAlert", func(ctx context.Context, s *alerts.AlertService) error {
		return s.ReportBandwidth(ctx, p.account.id, 100, 100, period)
	}) {
		p.reported = append(p.reported, report{alerts.TypeBandwidthLimitReached, period}, report{alerts.TypeBandwidthLimitApproaching, period})
	}
}

func (p *publisher) balance(ctx context.Context) {
	balance := alerts.Amount(1)
	if p.low {
		balance = 1_000_000
	}
	if p.untilAcked(ctx, "the balance "+balance.String(), "UpdateAlert", func(ctx context.Context, s *alerts.AlertService) error {
		return s.ReportBalance(ctx, p.account.id, balance)
	}) {
		if p.low = !p.low; p.low {
			p.fallen++
		}
	}
}

func (p *publisher) file(ctx context.Context) {
	p.files++
	file := alerts.ExpiringFile{ID: fmt.Sprint("file-", p.files), ExpiresAt: p.world.wallNow().Add(4 * day)}
	if p.untilAcked(ctx, file.ID, "EnqueueOnce", func(ctx context.Context, s *alerts.AlertService) error {
		return s.ReportFiles(ctx, p.account.id, []alerts.ExpiringFile{file})
	}) {
		p.reported = append(p.reported, report{alerts.TypeFilesExpiring, file.ID})
	}
}
