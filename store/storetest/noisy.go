package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// The maximum delays of a Noisy store's reports. The contract requires the first report of a step
// within a second.
const (
	maxLate  = 300 * time.Millisecond
	maxStale = time.Minute // for repeated reports
)

// Noisy wraps d and repeats, delays and reorders the reports of Deliver as far as the contract
// permits. These reports must not change how often or how soon a scheduler attempts each delivery.
// No report overtakes an earlier Forget or Trouble.
func Noisy(d driver.Deliveries, seed uint64) driver.Deliveries {
	return &noisy{Deliveries: d, random: rand.New(rand.NewPCG(seed, 1)), noises: make(map[*noise]bool)}
}

type noisy struct {
	driver.Deliveries
	mu     sync.Mutex
	random *rand.Rand
	noises map[*noise]bool // one for each running Deliver
}

func (n *noisy) Deliver(ctx context.Context, s driver.Scheduler) error {
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

// Unreported also counts the deliveries whose reports are delayed.
func (n *noisy) Unreported(ctx context.Context, webhookID string) (driver.Backlog, error) {
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

// A noise forwards the reports of one Deliver call to a scheduler, with mu held.
type noise struct {
	to     driver.Scheduler
	mu     sync.Mutex
	random *rand.Rand
	late   map[*late]bool
}

// A late is a delayed report.
type late struct {
	timer     *time.Timer
	report    func()
	webhookID string
	group     driver.Group
	fresh     bool // the delivery has not been reported yet
	again     bool // the report has already been forwarded once
}

// after forwards a report after a random delay.
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

// drop discards the delayed reports that which selects.
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

// pass forwards a report now, later, or both.
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

func (n *noise) Add(list []driver.PendingDelivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list = slices.Clone(list)
	n.random.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	now := make([]driver.PendingDelivery, 0, 2*len(list))
	for _, p := range list {
		report := func() { n.to.Add([]driver.PendingDelivery{p}) }
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

func (n *noise) Nudge(ref driver.DeliveryRef) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass(func() { n.to.Nudge(ref) })
}

func (n *noise) Webhook(w *driver.Webhook) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass(func() { n.to.Webhook(w) })
}

// Probe is never repeated, because each call requests an attempt.
func (n *noise) Probe(webhookID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if report := func() { n.to.Probe(webhookID) }; n.random.IntN(3) == 0 {
		n.after(late{}, report)
	} else {
		report()
	}
}

// Forget is never delayed. It drops delayed reports of the group, because the store reports the
// group's deliveries again if it claims the group again.
func (n *noise) Forget(scope driver.Scope) {
	if scope.Group != 0 {
		n.drop(func(l *late) bool { return l.group == scope.Group })
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to.Forget(scope)
}

// Trouble is never delayed. It first forwards the delayed reports that have not been forwarded yet,
// because nil means that all deliveries have been reported.
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

func (n *noise) Ended(refs []driver.DeliveryRef) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.random.IntN(4) > 0 {
		n.to.Ended(refs)
	}
}

func (n *noise) Pause(groups []driver.Group)    { n.to.Pause(groups) }
func (n *noise) UnderWay() map[driver.Group]int { return n.to.UnderWay() }
