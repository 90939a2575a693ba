package queue

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A feed takes the reports of a store for Claims. A report is applied at once unless another
// call holds the queue: it is applied by the next call then, so that a commit never waits for
// turns and figures.
type feed Claims

var _ webhooks.Scheduler = (*feed)(nil)

// report applies a report, now or later. keep is called before if it is later.
func (f *feed) report(keep func(), apply func(c *Claims)) {
	c := (*Claims)(f)
	if c.mu.TryLock() {
		c.drain()
		apply(c)
		c.mu.Unlock()
	} else {
		if keep != nil {
			keep()
		}
		c.inbox.Lock()
		c.inbox.list = append(c.inbox.list, func() { apply(c) })
		c.inbox.Unlock()
	}
	c.inbox.Lock()
	defer c.inbox.Unlock()
	for _, wake := range c.inbox.wakers {
		wake()
	}
}

func (f *feed) Add(list []webhooks.PendingDelivery) {
	f.report(func() { list = slices.Clone(list) }, func(c *Claims) { c.add(list) })
}

// Nudge makes the delivery the next of its webhook if it waits. If it is neither known to
// wait nor taken it is about to be reported by Add, due now.
func (f *feed) Nudge(ref webhooks.DeliveryRef) {
	f.report(nil, func(c *Claims) {
		k := c.hooks[ref.WebhookID]
		if k == nil {
			return
		}
		if t := k.find(ref.Number); t != nil {
			t.again, k.probed = true, true
		} else {
			c.queue.MakeDue(ref.WebhookID, ref.Number, time.Now())
		}
	})
}

func (f *feed) Webhook(w *webhooks.Webhook) {
	f.report(nil, func(c *Claims) {
		if k := c.hooks[w.ID]; k != nil {
			c.learn(k, w)
		} else {
			c.queue.EndRest(w.ID)
		}
	})
}

// Probe asks for nothing after a Nudge of a delivery that is taken: its attempt is the probe.
func (f *feed) Probe(webhookID string) {
	f.report(nil, func(c *Claims) {
		if k := c.hooks[webhookID]; k != nil && k.probed {
			k.probed = false
		} else {
			c.queue.Probe(webhookID)
		}
	})
}

func (f *feed) Forget(scope webhooks.Scope) {
	f.report(nil, func(c *Claims) {
		if scope.WebhookID != "" {
			c.forget(scope.WebhookID)
			return
		}
		for id, k := range c.hooks {
			if scope.Account != "" && k.webhook.Account == scope.Account || scope.Account == "" && k.group == scope.Group {
				c.forget(id)
			}
		}
		if scope.Account == "" {
			delete(c.paused, scope.Group)
		}
	})
}

func (f *feed) Pause(groups []webhooks.Group) {
	groups = slices.Clone(groups)
	f.report(nil, func(c *Claims) {
		for _, g := range groups {
			if c.paused == nil {
				c.paused = make(map[webhooks.Group]bool)
			}
			c.paused[g] = true
		}
		for id, k := range c.hooks {
			if slices.Contains(groups, k.group) {
				c.queue.Pause(id)
			}
		}
	})
}

// UnderWay counts the deliveries that are claimed, except those whose lease ran out.
func (f *feed) UnderWay() map[webhooks.Group]int {
	c := (*Claims)(f)
	c.lock()
	defer c.mu.Unlock()
	n := make(map[webhooks.Group]int)
	for id, leases := range c.queue.UnderWay(time.Now()) {
		if k := c.hooks[id]; k != nil {
			n[k.group] += leases
		}
	}
	return n
}

func (f *feed) Trouble(err error) {
	f.report(nil, func(c *Claims) {
		c.trouble = err
		if err == nil && !c.allLoaded {
			c.allLoaded = true
			close(c.loaded)
		}
	})
}

// maxReplaced is how much may be pending for a webhook of which reports are looked for: a
// replacement looks at all of that. Of a larger backlog, and while what is stored is reported, a
// report counts twice until one of both is loaded.
const maxReplaced = 4096

// add puts reported deliveries into the queue. If one is taken, its end puts it back: what
// the report knows is loaded then.
func (c *Claims) add(list []webhooks.PendingDelivery) {
	c.reported += len(list)
	for i := 0; i < len(list); {
		p := &list[i]
		k := c.hookOf(p)
		if p.Attempts == 0 || p.First || !c.allLoaded || c.queue.Backlog(time.Now(), p.Webhook.ID).Pending > maxReplaced {
			c.put(k, p)
			i++
			continue
		}
		first := i // of those that may wait already
		for i < len(list) && list[i].Webhook.ID == p.Webhook.ID && list[i].Attempts > 0 && !list[i].First {
			i++
		}
		c.replace(k, list[first:i])
	}
}

// hookOf returns the hook of a pending delivery. A new one is taken to be on: what is known
// of it may be old, and a report that it was turned on may have come when it was unknown.
func (c *Claims) hookOf(p *webhooks.PendingDelivery) *hook {
	k := c.hooks[p.Webhook.ID]
	switch {
	case k == nil:
		c.sweep()
		k = &hook{webhook: p.Webhook, group: p.Group, hinted: true}
		c.hooks[p.Webhook.ID] = k
	case p.Webhook.Version > k.webhook.Version && p.Webhook.Claimable():
		c.learn(k, p.Webhook)
		k.hinted = true
	}
	k.group = p.Group
	return k
}

func (c *Claims) put(k *hook, p *webhooks.PendingDelivery) {
	if t := k.find(p.Number); t != nil {
		t.again = true
		return
	}
	c.queue.Add(Pending{
		Webhook: p.Webhook.ID, Account: p.Webhook.Account, Seq: p.Number, Due: p.Due,
		Attempts: p.Attempts, Before: p.Before, Recovered: p.Recovered, First: p.First,
		Standing: StandingOf(k.webhook), Paused: c.stops(k),
	})
}

// replace puts deliveries of one webhook into the queue in place of what was reported of them
// before. Either report may be the stale one: the sooner due time counts, since Load corrects one
// that is too soon.
func (c *Claims) replace(k *hook, list []webhooks.PendingDelivery) {
	numbers := make([]uint64, len(list))
	for i := range list {
		numbers[i] = list[i].Number
	}
	waiting := c.queue.Reserve(k.webhook.ID, numbers)
	for i := range list {
		p := &list[i]
		if token := waiting[p.Number]; token != 0 {
			waiting[p.Number] = 0 // should the list have it twice
			c.queue.Hasten(token, p.Due, p.Attempts)
		} else {
			c.put(k, p)
		}
	}
}

// stops reports whether no attempt to send the webhook anything may begin.
func (c *Claims) stops(k *hook) bool { return k.off || c.paused[k.group] }

// learn notes what a webhook is, if that is no older than what is known.
func (c *Claims) learn(k *hook, w *webhooks.Webhook) {
	known := k.webhook
	if w.Version < known.Version {
		return
	}
	k.hinted = false
	if k.webhook = w; w.Version > known.Version {
		if !k.storing.is(w) {
			c.queue.EndRest(w.ID)
		}
		c.queue.SetStanding(w.ID, StandingOf(w))
	}
	if off := !w.Claimable(); off != k.off {
		k.off = off
		c.pause(k)
	}
}

// pause has the queue pass the webhook over, or not.
func (c *Claims) pause(k *hook) {
	if c.stops(k) {
		c.queue.Pause(k.webhook.ID)
	} else {
		c.queue.Resume(k.webhook.ID)
	}
}

// Purged removes deliveries that the store has ended: what no scheduler has to be told, and
// what Backlog counts until then. Those that are taken stay.
func (c *Claims) Purged(refs []webhooks.DeliveryRef) {
	numbers := make(map[string][]uint64)
	for _, ref := range refs {
		numbers[ref.WebhookID] = append(numbers[ref.WebhookID], ref.Number)
	}
	(*feed)(c).report(nil, func(c *Claims) {
		for id, list := range numbers {
			for _, token := range c.queue.Reserve(id, list) {
				c.queue.Done(token)
			}
		}
	})
}

func (c *Claims) forget(id string) {
	c.queue.Drop(id)
	delete(c.hooks, id)
}
