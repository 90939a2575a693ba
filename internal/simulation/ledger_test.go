package simulation_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// A ledger follows each delivery from claim to settlement, as the store is asked for
// it, and what its receiver sees of it. It knows the webhooks by the names of their
// receivers.
type ledger struct {
	world      *world
	mu         sync.Mutex
	deliveries map[[2]string]*delivery // by webhook and event
	leases     map[uint64]*delivery    // by token
	exhausted  map[string]time.Duration
	refused    map[string]time.Duration
	turnedOff  map[string]time.Duration // by the service
	failing    map[string]bool          // webhooks of which an attempt failed since the last that succeeded
	sending    map[string]int           // webhooks of which somebody is sending events again
}

// A delivery is what the ledger knows of one.
type delivery struct {
	webhook, event string
	lease          *lease        // nil: none is outstanding
	last           *lease        // the one before,
	ended          time.Duration // and when it ended
	attempts       int           // that were settled as made, or lapsed
	settled        int           // of them were settled
	process        int           // that claimed it last
	lapses         int           // leases that may have run out since then
	due            time.Duration // not to be claimed before
	asked          bool          // by the receiver
	early          bool          // or before, for the receiver has recovered since
	anew           bool          // it was sent again meanwhile: due means nothing
	claimed        time.Duration // when it last was
	state          webhooks.DeliveryState
	arrived        int // requests that were answered 2xx
}

// A lease is a claim that is not settled.
type lease struct {
	task     webhooks.Task
	host     string
	at       time.Duration
	process  int
	lost     bool // the claim's answer was
	settling bool // a settlement is under way, or doubted
	doubted  bool // nobody can tell whether one has happened
	outcome  webhooks.Settlement
	since    time.Duration // when that settlement began
	requests int
	status   int           // of the last answer
	asked    time.Duration // by Retry-After
}

func newLedger(w *world) *ledger {
	return &ledger{
		world: w, deliveries: make(map[[2]string]*delivery), leases: make(map[uint64]*delivery),
		exhausted: make(map[string]time.Duration), refused: make(map[string]time.Duration), turnedOff: make(map[string]time.Duration),
		sending: make(map[string]int), failing: make(map[string]bool),
	}
}

// hostOf returns the host of a webhook's URL: "w3-1", for webhook w3.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Hostname(), ".example.com")
}

// webhookOf returns the name of the webhook behind a host: each URL of it has another.
func webhookOf(host string) string {
	name, _, _ := strings.Cut(host, "-")
	return name
}

func (l *ledger) delivery(webhook, event string) *delivery {
	id := [2]string{webhook, event}
	d := l.deliveries[id]
	if d == nil {
		d = &delivery{webhook: webhook, event: event, state: webhooks.Pending}
		l.deliveries[id] = d
	}
	return d
}

func (d *delivery) about() []string { return []string{d.webhook, d.event} }

// early is by how much a store may be early: it counts in milliseconds.
const early = 2 * time.Millisecond

// claimed notes claims, and checks that they were to be made.
func (l *ledger) claimed(process int, tasks []webhooks.Task) {
	w, now := l.world, l.world.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, task := range tasks {
		if task.Err != nil {
			w.breach("every record can be read", nil, "a task of webhook %s: %v", task.Webhook.ID, task.Err)
			continue
		}
		host := hostOf(task.Webhook.URL)
		d := l.delivery(webhookOf(host), task.Event.ID)
		w.tell("dispatcher", d.about(), "claims %s for %s, attempt %d", d.event, host, task.Attempt)
		if deleted, ok := w.deleted(d.webhook); ok && now > deleted {
			w.breach("nothing is claimed of what was deleted", d.about(), "%s was deleted at %s", d.webhook, clock(deleted))
		}
		l.supersede(d, process, now)
		d.anew = d.anew || l.sending[d.webhook] > 0
		w.punctual(d, now)
		before := task.Before
		least := d.attempts
		if w.path != "" && d.process != process {
			least = d.settled // a file does not know of leases that ran out
		}
		d.process = process
		switch made := task.Attempt - 1; {
		case made < least || made > d.attempts+d.lapses:
			w.breach("attempts are counted right", d.about(), "attempt %d of %s for %s, after %d that were made and at most %d that ran out",
				task.Attempt, d.event, d.webhook, d.attempts, d.lapses)
		default:
			d.attempts = made
		}
		if before > task.Attempt-1 {
			w.breach("attempts are counted right", d.about(), "attempt %d counts %d before", task.Attempt, before)
		}
		by := early
		if task.Probe {
			by = time.Minute // somebody asked for it
		}
		if now < d.due-by && !d.anew && !d.early && !l.recovering(d) {
			rule := "retries come on schedule"
			if w.era.from > 0 {
				rule = "a clock that was set moves nothing more than once"
			}
			w.breach(rule, d.about(), "attempt %d of %s for %s comes %v early", task.Attempt, d.event, d.webhook, d.due-now)
		}
		switch {
		case d.anew:
		case d.state == webhooks.Delivered || d.state == webhooks.Dead:
			w.breach("what is settled is settled", d.about(), "%s is claimed for %s though it is %s", d.event, d.webhook, d.state)
		}
		d.lapses, d.anew, d.early, d.state, d.claimed = 0, false, false, webhooks.Pending, now
		d.due = min(d.due, now) // if this lease runs out, the delivery is due again
		d.lease = &lease{task: task, host: host, at: now, process: process}
		l.leases[task.Token] = d
	}
}

// supersede ends the lease that a claim finds outstanding, if it may have ended.
func (l *ledger) supersede(d *delivery, process int, now time.Duration) {
	le := d.lease
	if le == nil {
		return
	}
	delete(l.leases, le.task.Token)
	d.lease = nil
	switch {
	case le.settling && le.process != process: // who knows
		d.lapses++
		d.anew = true
	case le.settling: // it has happened, whatever was said
		l.conclude(d, &le.outcome, le.since)
	case le.process != process, le.lost:
		d.lapses++
	default:
		l.world.breach("nothing is claimed twice", d.about(), "%s is claimed for %s while the claim of %s is outstanding in the same process",
			d.event, d.webhook, clock(le.at))
		d.lapses++
	}
}

// conclude makes of the delivery what a settlement does.
func (l *ledger) conclude(d *delivery, s *webhooks.Settlement, since time.Duration) {
	d.due, d.asked = since, s.Asked
	switch s.Outcome {
	case webhooks.Release:
		return
	case webhooks.Retry:
		d.due = since + s.RetryAfter
	case webhooks.Deliver:
		d.state = webhooks.Delivered
	case webhooks.GiveUp:
		d.state = webhooks.Dead
	}
	d.attempts, d.settled = s.Task.Attempt, s.Task.Attempt
	switch {
	case s.Outcome != webhooks.Deliver:
		l.failing[d.webhook] = true
	case l.failing[d.webhook]:
		l.failing[d.webhook] = false
		l.recovers(d.webhook)
	}
}

// turnsOn lets what waits for a webhook's next attempts come early: whoever turns it on says that its
// receiver is well.
func (l *ledger) turnsOn(webhook string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recovers(webhook)
}

// recovers lets all come early that waits for its next attempt: the receiver takes events again. What
// the receiver asked for is heeded.
func (l *ledger) recovers(webhook string) {
	for _, d := range l.deliveries {
		if d.webhook == webhook && d.state == webhooks.Pending && !d.asked {
			d.early = true
		}
	}
}

// recovering reports whether a settlement is under way that lets d come early: what it does can be
// seen before it returns.
func (l *ledger) recovering(d *delivery) bool {
	if d.asked || !l.failing[d.webhook] {
		return false
	}
	for _, other := range l.leases {
		if le := other.lease; other.webhook == d.webhook && le.settling && le.outcome.Outcome == webhooks.Deliver {
			return true
		}
	}
	return false
}

// lost notes that nobody heard of these claims.
func (l *ledger) lost(tasks []webhooks.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, task := range tasks {
		if d := l.leases[task.Token]; d != nil {
			d.lease.lost = true
			l.world.tell("store", d.about(), "lost the answer to the claim of %s for %s", d.event, d.webhook)
		}
	}
}

// settling notes that settlements begin.
func (l *ledger) settling(settlements []webhooks.Settlement) {
	now := l.world.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range settlements {
		if d := l.leases[s.Task.Token]; d != nil {
			d.lease.settling, d.lease.outcome, d.lease.since = true, s, now
		}
	}
}

// settled notes what came of settlements, and checks them.
func (l *ledger) settled(settlements []webhooks.Settlement, stale []int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil { // it may have happened: the next claim tells, or the next settlement
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrReadOnly) {
			for _, s := range settlements { // no, it has not
				if d := l.leases[s.Task.Token]; d != nil {
					d.lease.settling = d.lease.doubted
				}
			}
			return
		}
		for _, s := range settlements {
			if d := l.leases[s.Task.Token]; d != nil {
				d.lease.doubted = true
			}
		}
		return
	}
	isStale := make(map[int]bool)
	for _, i := range stale {
		isStale[i] = true
	}
	for i := range settlements {
		s := &settlements[i]
		d := l.leases[s.Task.Token]
		if d == nil {
			continue // it was settled before, or somebody else has it
		}
		le := d.lease
		delete(l.leases, s.Task.Token)
		d.lease, d.last, d.ended = nil, le, l.world.now()
		if isStale[i] { // the webhook is gone, or it happened the first time
			l.conclude(d, s, le.since)
			continue
		}
		l.world.tell("dispatcher", d.about(), "settles attempt %d of %s for %s: %s", s.Attempt.Number, d.event, le.host, told(s))
		if s.Deactivate != "" {
			l.turnedOff[d.webhook] = l.world.now()
		}
		l.check(d, le, s)
		l.conclude(d, s, le.since)
	}
}

func told(s *webhooks.Settlement) string {
	text := [...]string{"release", "retry", "deliver", "give up"}[s.Outcome]
	if s.Outcome == webhooks.Retry {
		text += " in " + s.RetryAfter.Truncate(time.Millisecond).String()
	}
	if s.Attempt.Error != "" {
		text += ", " + s.Attempt.Error
	}
	if s.Deactivate != "" {
		text += ", off: " + string(s.Deactivate)
	}
	return text
}

// check checks a settlement against what the receiver saw.
func (l *ledger) check(d *delivery, le *lease, s *webhooks.Settlement) {
	w, config := l.world, &l.world.plan.config
	if s.Outcome == webhooks.Release {
		return
	}
	if s.Attempt.Number != le.task.Attempt {
		w.breach("attempts are counted right", d.about(), "attempt %d is settled as number %d", le.task.Attempt, s.Attempt.Number)
	}
	if s.Outcome == webhooks.Deliver {
		if le.status < 200 || le.status > 299 {
			w.breach("what is delivered has arrived", d.about(), "%s is settled as delivered to %s, whose receiver answered %d", d.event, d.webhook, le.status)
		}
		return
	}
	if le.requests == 0 && l.exhausted[le.host] >= le.at && l.refused[le.host] < le.at {
		w.breach("what the host lacks is not the receivers' fault", d.about(), "attempt %d of %s for %s is used up by want of descriptors: %s",
			le.task.Attempt, d.event, d.webhook, s.Attempt.Error)
	}
	n := le.task.Attempt - le.task.Before
	if s.Outcome == webhooks.GiveUp {
		if n <= len(config.Retries) && le.status != 410 && s.Attempt.Class != webhooks.ClassExpired {
			w.breach("nothing is given up early", d.about(), "%s is given up for %s after attempt %d of %d", d.event, d.webhook, n, len(config.Retries)+1)
		}
		return
	}
	if n > len(config.Retries) {
		w.breach("nothing is tried for ever", d.about(), "%s is to have a retry for %s after attempt %d", d.event, d.webhook, n)
		return
	}
	wait, jitter := config.Retries[n-1], 0.2
	low, high := time.Duration(float64(wait)*(1-jitter)), time.Duration(float64(wait)*(1+jitter))
	if s.RetryAfter < max(low, le.asked) || s.RetryAfter > max(high, le.asked+time.Second) {
		w.breach("retries come on schedule", d.about(), "after attempt %d of %s for %s the next is due in %v, which should be in %v ± 20 %%, and not before %v",
			n, d.event, d.webhook, s.RetryAfter, wait, le.asked)
	}
}

// sendsAgain notes that somebody begins to make a delivery due, or with an empty event
// all of a webhook's; and with the function that it returns, that this is over.
func (l *ledger) sendsAgain(webhook, event string) (over func()) {
	mark := func(change int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sending[webhook] += change
		for _, d := range l.deliveries {
			if d.webhook == webhook && (event == "" || d.event == event) {
				d.anew = true
			}
		}
	}
	mark(1)
	return func() { mark(-1) }
}

// clockWasSet notes that what waits may be due, whatever was said.
func (l *ledger) clockWasSet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.deliveries {
		d.due = 0
	}
}

// off returns when the service last turned a webhook off.
func (l *ledger) off(webhook string) (ok bool, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok = l.turnedOff[webhook]
	return ok, at
}

// waits reports whether the event, or any if that is empty, waits to be claimed for the
// webhook, which was due at a time; of which nothing is under way, and nothing was
// claimed since.
func (l *ledger) waits(webhook, event string, at time.Duration) (waits bool) {
	late := time.Duration(0)
	if l.world.clockSet() != 0 || l.world.era.from > 0 {
		// A file that is opened again may see a clock that was set back: each time what
		// is due is late by the age of the file's mark of the clock.
		late = time.Duration(l.world.starts()) * 10 * time.Minute
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.deliveries {
		if d.webhook != webhook {
			continue
		}
		if d.claimed >= at || d.lease != nil {
			return false
		}
		waits = waits || (event == "" || d.event == event) && (event != "" || d.due+late <= at && d.state == webhooks.Pending)
	}
	return waits
}

// failsBy notes that a connection could not be made: by the host's fault, or by the
// receiver's.
func (l *ledger) failsBy(host string, hosts bool) {
	now := l.world.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if hosts {
		l.exhausted[host] = now
	} else {
		l.refused[host] = now
	}
}

// claimedSince reports whether a delivery was claimed since then.
func (l *ledger) claimedSince(webhook, event string, at time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.deliveries[[2]string{webhook, event}]
	return d != nil && d.claimed >= at
}

// arrives notes that a request arrives, and returns the lease that it is of; nil:
// there is none.
func (l *ledger) arrives(host, event string) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.deliveries[[2]string{webhookOf(host), event}]
	if d == nil {
		return nil
	}
	le := d.lease
	if le == nil && d.ended == l.world.now() {
		le = d.last // it ended in this instant, after the request was sent
	}
	if le == nil || le.host != host {
		return nil
	}
	le.requests++
	return le
}

// answers notes what a receiver is about to answer.
func (l *ledger) answers(host, event string, le *lease, status int, asked time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if le != nil {
		le.status, le.asked = status, asked
	}
	if d := l.deliveries[[2]string{webhookOf(host), event}]; d != nil && status >= 200 && status <= 299 {
		d.arrived++
	}
}
