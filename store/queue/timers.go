package queue

import "github.com/storageapi/storageapi/internal/heap"

// Timers hold lanes by when their first item may be claimed.
type timers struct{ heap.Heap[*lane] }

func (t *timers) add(l *lane) { t.Push(l) }

func (t *timers) remove(l *lane) {
	if l.place >= 0 {
		t.Remove(l.place)
	}
}

// first returns when the first of them is due, or then if that is sooner.
func (t *timers) first(then int64) int64 {
	if len(t.Heap) > 0 {
		return min(then, t.Heap[0].due())
	}
	return then
}

// Before and Moved make a lane a [heap.Item].

func (l *lane) Before(other *lane) bool {
	due, others := l.due(), other.due()
	return due < others || due == others && l.waiting[0].seq < other.waiting[0].seq
}

func (l *lane) Moved(place int) { l.place = place }
