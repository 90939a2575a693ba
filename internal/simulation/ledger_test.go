package simulation_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// A ledger follows each delivery from its loading until its result is stored. It observes the calls
// of the store and the requests to the receiver. It identifies webhooks by the names of their
// receivers.
type ledger struct {
	world      *world
	mu         sync.Mutex
	deliveries map[[2]string]*delivery // by webhook and event
	loads      map[driver.DeliveryRef]*delivery
	names      map[string]string // of webhooks, by ID
	exhausted  map[string]time.Duration
	refused    map[string]time.Duration
	turnedOff  map[string]time.Duration // when the service last disabled a webhook
	failing    map[string]bool          // webhooks with a failed attempt since the last success
	sending    map[string]int           // number of running calls that resend events, by webhook
	probed     map[string]time.Duration // when an attempt was last requested, by webhook ID
}

// A delivery is the ledger's state of a delivery.
type delivery struct {
	webhook, event string
	load           *load         // nil means not loaded, or its result is stored
	last           *load         // the previous load
	ended          time.Duration // when the result of last was stored
	attempts       int           // number of attempts with a stored result
	due            time.Duration // earliest time of the next attempt
	asked          bool          // the receiver determined due, by Retry-After
	early          bool          // the receiver has recovered, so the next attempt may be before due
	anew           bool          // it was resent meanwhile, so due does not apply
	tried          time.Duration // start of the last attempt
	state          webhooks.DeliveryState
	arrived        int // requests with a 2xx response
}

// A load is a delivery that was loaded for an attempt. A request to its receiver, or its result,
// shows that the attempt was made.
type load struct {
	ref      driver.DeliveryRef
	attempt  int // its number
	before   int
	host     string
	at       time.Duration
	process  int
	anew     bool // the delivery was resent before the load
	early    bool // the receiver had recovered before the load
	tried    bool // an attempt was made
	settling bool // a result is being stored, or doubted is set
	doubted  bool // it is not known whether a result was stored
	result   driver.AttemptResult
	since    time.Duration // when storing began
	requests int
	status   int           // of the last response
	asked    time.Duration // by Retry-After
}

func newLedger(w *world) *ledger {
	return &ledger{
		world: w, deliveries: make(map[[2]string]*delivery), loads: make(map[driver.DeliveryRef]*delivery),
		exhausted: make(map[string]time.Duration), refused: make(map[string]time.Duration), turnedOff: make(map[string]time.Duration),
		sending: make(map[string]int), failing: make(map[string]bool),
		names: make(map[string]string), probed: make(map[string]time.Duration),
	}
}

// hostOf returns the host of a webhook's URL without ".example.com": "w3-1" for webhook w3.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Hostname(), ".example.com")
}

// webhookOf returns the name of the webhook of a host. Each URL of a webhook has a different host.
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

// early is how far an attempt may precede its due time, because stores round to milliseconds.
const early = 2 * time.Millisecond

// loaded records and checks the deliveries that a call, begun at the given time, has loaded.
func (l *ledger) loaded(process int, began time.Duration, refs []driver.DeliveryRef, found []driver.LoadedDelivery) {
	now := l.world.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range found {
		if found[i].State == driver.Ready {
			l.ready(process, began, now, refs[i], &found[i])
		}
	}
}

func (l *ledger) ready(process int, began, now time.Duration, ref driver.DeliveryRef, found *driver.LoadedDelivery) {
	w := l.world
	if found.Err != nil {
		w.breach("every record can be read", nil, "a delivery to webhook %s: %v", ref.WebhookID, found.Err)
		return
	}
	host := hostOf(found.Webhook.URL)
	d := l.delivery(webhookOf(host), found.Event.ID)
	l.names[ref.WebhookID] = d.webhook
	if deleted, ok := w.deleted(d.webhook); ok && began > deleted {
		w.breach("nothing is loaded of what was deleted", d.about(), "%s was deleted at %s", d.webhook, clock(deleted))
	}
	l.supersede(d, process, found.Attempts)
	d.anew = d.anew || l.sending[d.webhook] > 0
	if found.Attempts != d.attempts {
		w.breach("attempts are counted right", d.about(), "%d attempts at %s for %s are loaded, after %d that were made",
			found.Attempts, d.event, d.webhook, d.attempts)
		d.attempts = found.Attempts
	}
	if found.Before > found.Attempts {
		w.breach("attempts are counted right", d.about(), "%d attempts count %d before", found.Attempts, found.Before)
	}
	if !d.anew && (d.state == webhooks.Delivered || d.state == webhooks.Dead) {
		w.breach("what is settled is settled", d.about(), "%s is loaded for %s though it is %s", d.event, d.webhook, d.state)
	}
	d.state = webhooks.Pending
	d.load = &load{
		ref: ref, attempt: found.Attempts + 1, before: found.Before, host: host, at: now, process: process,
		anew: d.anew, early: d.early,
	}
	l.loads[ref] = d
}

// tries records an attempt of the loaded delivery, and checks that it is not too early.
func (l *ledger) tries(d *delivery) {
	le, w := d.load, l.world
	if le.tried {
		return
	}
	le.tried = true
	w.tell("dispatcher", d.about(), "attempts %s for %s, number %d, loaded at %s", d.event, le.host, le.attempt, clock(le.at))
	w.punctual(d, le.at)
	by := early
	if probed, ok := l.probed[le.ref.WebhookID]; ok && le.at-probed < 2*time.Minute {
		by = time.Minute
	}
	if le.at < d.due-by && !le.anew && !le.early && !l.recovering(d) {
		rule := "retries come on schedule"
		if w.era.from > 0 {
			rule = "a clock that was set moves nothing more than once"
		}
		w.breach(rule, d.about(), "attempt %d of %s for %s comes %v early", le.attempt, d.event, d.webhook, d.due-le.at)
	}
	d.anew, d.early, d.tried = l.sending[d.webhook] > 0, false, le.at
	d.due = min(d.due, le.at) // without a result, the delivery is due again
}

// supersede ends an earlier load of the delivery.
func (l *ledger) supersede(d *delivery, process, attempts int) {
	le := d.load
	if le == nil {
		return
	}
	delete(l.loads, le.ref)
	d.load = nil
	if le.settling && attempts >= le.attempt { // the result was stored, although the call returned an error
		l.conclude(d, le)
	} else if le.settling && le.process == process && !le.doubted {
		l.world.breach("nothing is attempted twice", d.about(), "%s is loaded for %s while the result of what was loaded at %s is being stored in the same process",
			d.event, d.webhook, clock(le.at))
	}
}

// conclude applies the result of a load to the delivery.
func (l *ledger) conclude(d *delivery, le *load) {
	d.due, d.asked = le.since, le.asked > 0 && le.result.RetryAfter == le.asked // otherwise the schedule's wait is longer
	switch le.result.Effect {
	case driver.Retry:
		d.due = le.since + le.result.RetryAfter
	case driver.Deliver:
		d.state = webhooks.Delivered
	case driver.GiveUp:
		d.state = webhooks.Dead
	}
	d.attempts = le.attempt
	switch {
	case le.result.Effect != driver.Deliver:
		l.failing[d.webhook] = true
	case l.failing[d.webhook]:
		l.failing[d.webhook] = false
		l.recovers(d.webhook)
	}
}

// turnsOn allows early attempts for a webhook that was enabled, because enabling it means that its
// receiver works.
func (l *ledger) turnsOn(webhook string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recovers(webhook)
}

// recovers allows early attempts for a webhook whose receiver accepts events again, but not before
// the time that the receiver asked for.
func (l *ledger) recovers(webhook string) {
	for _, d := range l.deliveries {
		if d.webhook == webhook && d.state == webhooks.Pending && !d.asked {
			d.early = true
			if d.load != nil {
				d.load.early = true
			}
		}
	}
}

// recovering reports whether a result is being stored that allows an early attempt of d. Its effect
// can be visible before the call returns.
func (l *ledger) recovering(d *delivery) bool {
	if d.asked || !l.failing[d.webhook] {
		return false
	}
	for _, other := range l.loads {
		if le := other.load; other.webhook == d.webhook && le.settling && le.result.Effect == driver.Deliver {
			return true
		}
	}
	return false
}

// settling records the start of a call that stores results.
func (l *ledger) settling(results []driver.AttemptResult) {
	now := l.world.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if d := l.loads[r.DeliveryRef]; d != nil {
			l.tries(d)
			d.load.attempt = max(d.load.attempt, r.Attempt.Number) // an expired lease counts as an attempt
			d.load.settling, d.load.result, d.load.since = true, r, now
		}
	}
}

// settled records and checks the outcome of a call that stores results and changes of health.
func (l *ledger) settled(results []driver.AttemptResult, health []driver.HealthChange, settled driver.Settled, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil { // the effect is not known until the next load or call
		certain := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrReadOnly)
		for _, r := range results {
			if d := l.loads[r.DeliveryRef]; d != nil && certain { // it had no effect
				d.load.settling = d.load.doubted
			} else if d != nil {
				d.load.doubted = true
			}
		}
		return
	}
	for i := range results {
		r := &results[i]
		d := l.loads[r.DeliveryRef]
		if d == nil || d.load.attempt != r.Attempt.Number {
			continue // its result is already stored, or another process attempts it
		}
		le := d.load
		delete(l.loads, r.DeliveryRef)
		d.load, d.last, d.ended = nil, le, l.world.now()
		if !slices.Contains(settled.Stale, i) { // otherwise the webhook is deleted, or an earlier call stored the result
			l.world.tell("dispatcher", d.about(), "stores attempt %d of %s for %s: %s", r.Attempt.Number, d.event, le.host, told(r))
			l.check(d, le, r)
		}
		l.conclude(d, le)
	}
	for i := range health {
		if c := &health[i]; !c.Health.Active && !slices.Contains(settled.Conflicts, i) {
			l.turnedOff[l.names[c.WebhookID]] = l.world.now()
			l.world.tell("dispatcher", []string{l.names[c.WebhookID]}, "turns %s off: %s", l.names[c.WebhookID], c.Health.OffReason)
		}
	}
}

func told(r *driver.AttemptResult) string {
	text := map[driver.Effect]string{driver.Retry: "retry", driver.Deliver: "deliver", driver.GiveUp: "give up"}[r.Effect]
	if r.Effect == driver.Retry {
		text += " in " + r.RetryAfter.Truncate(time.Millisecond).String()
	}
	if r.Attempt.Error != "" {
		text += ", " + r.Attempt.Error
	}
	return text
}

// check compares a result with the requests to the receiver.
func (l *ledger) check(d *delivery, le *load, r *driver.AttemptResult) {
	w, config := l.world, &l.world.plan.config
	if r.Effect == driver.Deliver {
		if le.status < 200 || le.status > 299 {
			w.breach("what is delivered has arrived", d.about(), "%s is stored as delivered to %s, whose receiver answered %d", d.event, d.webhook, le.status)
		}
		return
	}
	if r.Attempt.Class == webhooks.ClassResource {
		w.outside(d)
		return
	}
	if le.requests == 0 && l.exhausted[le.host] >= le.at && l.refused[le.host] < le.at {
		w.breach("what the host lacks is not the receivers' fault", d.about(), "attempt %d of %s for %s is used up by want of descriptors: %s",
			le.attempt, d.event, d.webhook, r.Attempt.Error)
	}
	n := le.attempt - le.before
	if r.Effect == driver.GiveUp {
		if n <= len(config.Retry.Delays) && le.status != 410 && r.Attempt.Class != webhooks.ClassExpired {
			w.breach("nothing is given up early", d.about(), "%s is given up for %s after attempt %d of %d", d.event, d.webhook, n, len(config.Retry.Delays)+1)
		}
		return
	}
	if n > len(config.Retry.Delays) {
		w.breach("nothing is tried for ever", d.about(), "%s is to have a retry for %s after attempt %d", d.event, d.webhook, n)
		return
	}
	wait, jitter := config.Retry.Delays[n-1], 0.2
	low, high := time.Duration(float64(wait)*(1-jitter)), time.Duration(float64(wait)*(1+jitter))
	if r.RetryAfter < max(low, le.asked) || r.RetryAfter > max(high, le.asked+time.Second) {
		w.breach("retries come on schedule", d.about(), "after attempt %d of %s for %s the next is due in %v, which should be in %v ± 20 %%, and not before %v",
			n, d.event, d.webhook, r.RetryAfter, wait, le.asked)
	}
}

// outside checks that a delivery given up because of its resource is outside the resources of its
// webhook.
func (w *world) outside(d *delivery) {
	resource := w.events.resource(d.event)
	for _, a := range w.accounts {
		states, _ := a.subscriber.recent(d.webhook)
		if len(states) > 0 && !slices.ContainsFunc(states, func(st state) bool { return !allows(st.resources, resource) }) {
			w.breach("nothing is given up early", d.about(), "%s of %q is given up for %s because of its resource", d.event, resource, d.webhook)
		}
	}
}

// probes records that an attempt is requested now.
func (l *ledger) probes(webhookID string) {
	now := l.world.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probed[webhookID] = now
}

// sendsAgain records the start of a call that resends an event or, if event is empty, all events of
// the webhook. over records the end of the call.
func (l *ledger) sendsAgain(webhook, event string) (over func()) {
	mark := func(change int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sending[webhook] += change
		for _, d := range l.deliveries {
			if d.webhook == webhook && (event == "" || d.event == event) {
				d.anew = true
				if d.load != nil {
					d.load.anew = true
				}
			}
		}
	}
	mark(1)
	return func() { mark(-1) }
}

// clockWasSet allows all deliveries to be due now.
func (l *ledger) clockWasSet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.deliveries {
		d.due = 0
	}
}

// off returns when the service last disabled a webhook, if it did.
func (l *ledger) off(webhook string) (ok bool, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok = l.turnedOff[webhook]
	return ok, at
}

// waits reports whether the event, or a due delivery if event is empty, has been pending for the
// webhook since at. It returns false if any of the webhook's deliveries is being attempted or was
// attempted since.
func (l *ledger) waits(webhook, event string, at time.Duration) (waits bool) {
	late := time.Duration(0)
	if l.world.clockSet() != 0 || l.world.era.from > 0 {
		// A file may be reopened after the clock was set back. Each time, due deliveries become
		// late by the age of the file's clock mark.
		late = time.Duration(l.world.starts()) * 10 * time.Minute
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.deliveries {
		if d.webhook != webhook {
			continue
		}
		if d.tried >= at || d.load != nil && (d.load.tried || l.world.now()-d.load.at < promptly) {
			return false
		}
		waits = waits || (event == "" || d.event == event) && (event != "" || d.due+late <= at && d.state == webhooks.Pending)
	}
	return waits
}

// failsBy records that a connection failed because of the host (hosts is true) or its receiver.
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

// triedSince reports whether a delivery was attempted at or after the given time.
func (l *ledger) triedSince(webhook, event string, at time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.deliveries[[2]string{webhook, event}]
	return d != nil && d.tried >= at
}

// arrives records the arrival of a request, and returns its load, or nil if there is none.
func (l *ledger) arrives(host, event string) *load {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.deliveries[[2]string{webhookOf(host), event}]
	if d == nil {
		return nil
	}
	le := d.load
	if le == nil && d.ended == l.world.now() {
		le = d.last // its result was stored at this instant, after the request was sent
	}
	if le == nil || le.host != host {
		return nil
	}
	if le == d.load {
		l.tries(d)
	}
	le.requests++
	return le
}

// answers records the response that a receiver is about to send.
func (l *ledger) answers(host, event string, le *load, status int, asked time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if le != nil {
		le.status, le.asked = status, asked
	}
	if d := l.deliveries[[2]string{webhookOf(host), event}]; d != nil && status >= 200 && status <= 299 {
		d.arrived++
	}
}
