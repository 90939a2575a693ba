package queue

import (
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

const (
	minUnread = 50 * time.Millisecond // until what could not be loaded is loaded again: the pauses double
	maxUnread = time.Second
)

// dueTolerance is by how much the due time that a store loads may differ from the one that it
// reported.
const dueTolerance = 2 * time.Millisecond

// unknown is how many attempts were made at a delivery of which something was reported while
// it was taken: when it is due is up to what the next load finds.
const unknown = -1

// take claims deliveries from the queue.
func (c *Claims) take(claim *webhooks.Claim) (claimed []Claimed, refs []webhooks.DeliveryRef, wait time.Duration) {
	c.lock()
	defer c.mu.Unlock()
	claimed, wait = c.queue.Claim(time.Now(), *claim)
	if !c.allLoaded {
		wait = min(wait, loadPause)
	}
	if len(claimed) == 0 {
		return nil, nil, wait
	}
	refs = make([]webhooks.DeliveryRef, len(claimed))
	for i := range claimed {
		cl := &claimed[i]
		refs[i] = webhooks.DeliveryRef{WebhookID: cl.Webhook, Number: cl.Seq}
		k := c.hooks[cl.Webhook]
		now := taken{number: cl.Seq, token: cl.Token, made: cl.Attempt - 1}
		if t := k.find(cl.Seq); t != nil { // its lease ran out, which counts, whichever report this claim is of
			now.made = max(now.made, t.made+1)
			*t = now
		} else {
			k.taken = append(k.taken, now)
		}
	}
	return claimed, refs, wait
}

// end ends the claim of a delivery, by letGo unless something was reported of it meanwhile: it
// is loaded again then.
func (c *Claims) end(webhook string, number, token uint64, letGo func(token uint64)) {
	k := c.hooks[webhook]
	if k == nil {
		return
	}
	if again, taken := k.drop(number, token); taken && again {
		c.queue.Retry(token, time.Now(), unknown, false)
	} else if taken {
		letGo(token)
	}
}

// drop removes a taken delivery. taken is false if it is no longer taken with that token.
func (k *hook) drop(number, token uint64) (again, taken bool) {
	t := k.find(number)
	if t == nil || t.token != token {
		return false, false
	}
	again = t.again
	last := len(k.taken) - 1
	*t = k.taken[last]
	k.taken = k.taken[:last]
	return again, true
}

// tasks returns the tasks of what is to be attempted, and lets the rest of what was claimed
// wait or drops it.
func (c *Claims) tasks(claimed []Claimed, found []webhooks.LoadedDelivery) []webhooks.Task {
	tasks := make([]webhooks.Task, 0, len(claimed))
	now := time.Now()
	c.loads++
	for i := range claimed {
		cl, l := &claimed[i], &found[i]
		k := c.hooks[cl.Webhook]
		if k == nil {
			continue // forgotten meanwhile
		}
		t := k.find(cl.Seq)
		if t == nil || t.token != cl.Token {
			continue
		}
		if l.Webhook != nil && l.Err == nil {
			c.learn(k, l.Webhook)
		}
		// A report of a later version than the loaded one: the load was earlier, or the report is
		// of a webhook that was deleted, and imported again since.
		unlike := k.hinted && l.Webhook != nil && l.Webhook.Version < k.webhook.Version
		t.made = max(l.Attempts, t.made)
		var letGo func(token uint64)
		switch {
		case l.State == webhooks.Gone:
			letGo = c.queue.Done
		case l.State == webhooks.Unread, unlike && l.State == webhooks.Passive:
			letGo = c.postpone(k, now)
		case l.State == webhooks.Passive, c.stops(k):
			letGo = c.queue.Release
		case l.Due.After(now.Add(dueTolerance)) && (l.Attempts > cl.Attempt-1 || !cl.Early):
			// The report was stale. Whether the receiver asked for the wait is not known.
			letGo = func(token uint64) { c.queue.Retry(token, l.Due, l.Attempts, true) }
		default:
			k.unread = 0
			task := webhooks.Task{
				Event: l.Event, Webhook: k.webhook, Attempt: t.made + 1, Before: l.Before,
				Token: cl.Token, Age: l.Age, Probe: cl.Probe, Err: l.Err,
			}
			if l.Err != nil || unlike {
				task.Webhook = l.Webhook
			}
			tasks = append(tasks, task)
			continue
		}
		c.end(cl.Webhook, cl.Seq, cl.Token, letGo)
		if cl.Probe {
			c.queue.ProbeAgain(cl.Webhook)
		}
	}
	return tasks
}

// postpone has a delivery that could not be loaded loaded again: the first time at once, since
// the load may just have read enough.
func (c *Claims) postpone(k *hook, now time.Time) func(token uint64) {
	if k.unreadIn != c.loads {
		k.unreadIn = c.loads
		k.unread++
	}
	if k.unread == 1 {
		return c.queue.Release
	}
	pause := minUnread << min(k.unread-2, 8)
	return func(token uint64) { c.queue.Postpone(token, now.Add(min(pause, maxUnread))) }
}
