package storetest

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// A waitingList holds the known deliveries of a Worker that are not in flight. The zero value is an
// empty list.
type waitingList struct {
	all    map[driver.DeliveryRef]*waiting
	lines  [3]line               // in the order of claims: with First, with neither, with Recovered
	parked map[string][]*waiting // deliveries to webhooks that are inactive or on hold, by webhook
}

// A waiting is a delivery in a waitingList.
type waiting struct {
	driver.PendingDelivery
	line  int // index in lines; -1 if parked
	index int // index in that line
}

func (w *waiting) ref() driver.DeliveryRef {
	return driver.DeliveryRef{WebhookID: w.Webhook.ID, Number: w.Number}
}

func lineOf(p *driver.PendingDelivery) int {
	switch {
	case p.First:
		return 0
	case p.Recovered:
		return 2
	}
	return 1
}

// add adds a delivery. If the list already has the delivery, the earlier due time counts.
func (l *waitingList) add(p driver.PendingDelivery) {
	if l.all == nil {
		l.all, l.parked = map[driver.DeliveryRef]*waiting{}, map[string][]*waiting{}
	}
	w := &waiting{PendingDelivery: p}
	if old := l.all[w.ref()]; old != nil {
		if l.remove(old); old.Due.Before(w.Due) {
			w.Due = old.Due
		}
	}
	l.all[w.ref()] = w
	l.push(w)
}

func (l *waitingList) push(w *waiting) {
	w.line = lineOf(&w.PendingDelivery)
	heap.Push(&l.lines[w.line], w)
}

func (l *waitingList) remove(w *waiting) {
	delete(l.all, w.ref())
	if w.line >= 0 {
		heap.Remove(&l.lines[w.line], w.index)
		return
	}
	list := l.parked[w.Webhook.ID]
	for i := range list {
		if list[i] == w {
			l.parked[w.Webhook.ID] = append(list[:i], list[i+1:]...)
			break
		}
	}
}

// pop removes and returns the next due delivery, or nil.
func (l *waitingList) pop(now time.Time) *waiting {
	for i := range l.lines {
		if len(l.lines[i]) > 0 && !l.lines[i][0].Due.After(now) {
			w := l.lines[i][0]
			l.remove(w)
			return w
		}
	}
	return nil
}

// next returns the time until the next delivery is due, at most an hour.
func (l *waitingList) next(now time.Time) time.Duration {
	next := time.Hour
	for i := range l.lines {
		if len(l.lines[i]) > 0 {
			next = min(next, l.lines[i][0].Due.Sub(now))
		}
	}
	return next
}

// park adds a delivery that waits until its webhook is unparked or until it is reported again.
func (l *waitingList) park(p driver.PendingDelivery) {
	w := &waiting{PendingDelivery: p, line: -1}
	l.all[w.ref()] = w
	l.parked[p.Webhook.ID] = append(l.parked[p.Webhook.ID], w)
}

func (l *waitingList) unpark(webhookID string) {
	list := l.parked[webhookID]
	delete(l.parked, webhookID)
	for _, w := range list {
		l.push(w)
	}
}

func (l *waitingList) nudge(ref driver.DeliveryRef) {
	if w := l.all[ref]; w != nil {
		l.remove(w)
		w.First, w.Due = true, time.Now()
		l.all[ref] = w
		l.push(w)
	}
}

func (l *waitingList) forget(in func(*driver.PendingDelivery) bool) {
	for _, w := range l.all {
		if in(&w.PendingDelivery) {
			l.remove(w)
		}
	}
}

// A line is a heap of deliveries, ordered by due time and number.
type line []*waiting

func (l line) Len() int { return len(l) }

func (l line) Less(i, k int) bool {
	return cmp.Or(l[i].Due.Compare(l[k].Due), cmp.Compare(l[i].Number, l[k].Number), cmp.Compare(l[i].Webhook.ID, l[k].Webhook.ID)) < 0
}

func (l line) Swap(i, k int) {
	l[i], l[k] = l[k], l[i]
	l[i].index, l[k].index = i, k
}

func (l *line) Push(w any) {
	w.(*waiting).index = len(*l)
	*l = append(*l, w.(*waiting))
}

func (l *line) Pop() any {
	last := len(*l) - 1
	w := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return w
}
