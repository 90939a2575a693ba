package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// The delays of a Noisy store's reports. A step is reported within a second.
const (
	maxLate  = 300 * time.Millisecond
	maxStale = time.Minute // of reports that were made before
)

// Noisy returns d with the reports of Deliver doubled, delayed and in another order, as far as
// the contract allows it: a scheduler above it must attempt each delivery as often, and as soon, as
// above d. Nothing overtakes a Forget or a Trouble that was reported before it.
func Noisy(d webhooks.Deliveries, seed uint64) webhooks.Deliveries {
	return &noisy{Deliveries: d, random: rand.New(rand.NewPCG(seed, 1)), noises: make(map[*noise]bool)}
}

type noisy struct {
	webhooks.Deliveries
	mu     sync.Mutex
	random *rand.Rand
	noises map[*noise]bool // of each Deliver under way
}

func (n *noisy) Deliver(ctx context.Context, s webhooks.Scheduler) error {
	n.mu.Lock()
	noise := &noise{to: s, random: rand.New(rand.NewPCG(n.random.Uint64(), 1)), late: make(map[*late]bool)}
	n.noises[noise] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.noises, noise)
		n.mu.Unlock()
		noise.drop(func(*late) bool { return true })
	}()
	return n.Deliveries.Deliver(ctx, noise)
}

// Unreported counts what is delayed as well.
func (n *noisy) Unreported(ctx context.Context, webhookID string) (webhooks.Backlog, error) {
	b, err := n.Deliveries.Unreported(ctx, webhookID)
	if err != nil {
		return b, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for noise := range n.noises {
		b.Pending += noise.unreported(webhookID)
	}
	return b, nil
}

// A noise passes reports on to a scheduler, holding mu.
type noise struct {
	to     webhooks.Scheduler
	mu     sync.Mutex
	random *rand.Rand
	late   map[*late]bool
}

// A late is a report that is still to be passed on.
type late struct {
	timer     *time.Timer
	report    func()
	webhookID string
	group     webhooks.Group
	fresh     bool // it is the only report of a pending delivery so far
	again     bool // it was passed on before
}

// after passes a report on later.
func (n *noise) after(l late, report func()) {
	l.report = report
	longest := maxLate
	if l.again {
		longest = maxStale
	}
	l.timer = time.AfterFunc(time.Duration(n.random.Int64N(int64(longest))), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.late[&l] {
			delete(n.late, &l)
			l.report()
		}
	})
	n.late[&l] = true
}

// drop forgets reports that are late.
func (n *noise) drop(which func(*late) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.late {
		if which(l) {
			l.timer.Stop()
			delete(n.late, l)
		}
	}
}

func (n *noise) unreported(webhookID string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.late {
		if l.fresh && (webhookID == "" || webhookID == l.webhookID) {
			count++
		}
	}
	return count
}

// pass passes a report on now, later, or now and again later.
func (n *noise) pass(report func()) {
	switch n.random.IntN(4) {
	case 0:
		n.after(late{}, report)
	case 1:
		report()
		n.after(late{again: true}, report)
	default:
		report()
	}
}

func (n *noise) Add(list []webhooks.PendingDelivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list = slices.Clone(list)
	n.random.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	now := make([]webhooks.PendingDelivery, 0, 2*len(list))
	for _, p := range list {
		report := func() { n.to.Add([]webhooks.PendingDelivery{p}) }
		switch n.random.IntN(5) {
		case 0:
			n.after(late{webhookID: p.Webhook.ID, group: p.Group, fresh: true}, report)
		case 1:
			n.after(late{group: p.Group, again: true}, report)
			now = append(now, p)
		case 2:
			now = append(now, p, p)
		default:
			now = append(now, p)
		}
	}
	if len(now) > 0 {
		n.to.Add(now)
	}
}

func (n *noise) Nudge(ref webhooks.DeliveryRef) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass(func() { n.to.Nudge(ref) })
}

func (n *noise) Webhook(w *webhooks.Webhook) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass(func() { n.to.Webhook(w) })
}

// Probe is not doubled: each asks for an attempt.
func (n *noise) Probe(webhookID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if report := func() { n.to.Probe(webhookID) }; n.random.IntN(3) == 0 {
		n.after(late{}, report)
	} else {
		report()
	}
}

// Forget is not delayed. What is late of a group is dropped: the store reports it again if it
// takes the group again.
func (n *noise) Forget(scope webhooks.Scope) {
	if scope.Group != 0 {
		n.drop(func(l *late) bool { return l.group == scope.Group })
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to.Forget(scope)
}

// Trouble is not delayed, and comes after all that was reported before: nil says that.
func (n *noise) Trouble(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.late {
		if !l.again && l.timer.Stop() {
			delete(n.late, l)
			l.report()
		}
	}
	n.to.Trouble(err)
}

func (n *noise) Ended(refs []webhooks.DeliveryRef) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.random.IntN(4) > 0 {
		n.to.Ended(refs)
	}
}

func (n *noise) Pause(groups []webhooks.Group)    { n.to.Pause(groups) }
func (n *noise) UnderWay() map[webhooks.Group]int { return n.to.UnderWay() }
