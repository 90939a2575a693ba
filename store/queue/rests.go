package queue

import (
	"math"
	"time"
)

// rests are the webhooks that are to be left alone, until when. Some are over.
type rests struct {
	all  map[string]int64
	most int // how many there may be before those that are over are looked for
}

const (
	minRests = 64            // may be over without being looked for
	noRest   = math.MinInt64 // is over
)

func (r *rests) of(webhook string) int64 {
	if end, rests := r.all[webhook]; rests {
		return end
	}
	return noRest
}

// Rest has claims pass the webhook over until then, except for probes, or until EndRest; also
// what is added later.
func (q *Queue) Rest(webhook string, until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := &q.rests
	if r.all == nil {
		r.all = make(map[string]int64)
	}
	end := max(q.at(until), r.of(webhook))
	r.all[webhook] = end
	if len(r.all) > max(r.most, minRests) {
		now := q.at(time.Now())
		for id, end := range r.all {
			if end <= now {
				delete(r.all, id)
			}
		}
		r.most = 2 * len(r.all)
	}
	q.setRest(webhook, end)
	if e := q.webhooks.all[webhook]; e != nil {
		e.down = true
	}
}

// EndRest ends a Rest.
func (q *Queue) EndRest(webhook string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, rests := q.rests.all[webhook]; rests {
		delete(q.rests.all, webhook)
		q.setRest(webhook, noRest)
	}
}

func (q *Queue) setRest(webhook string, end int64) {
	e := q.webhooks.all[webhook]
	if e == nil {
		return
	}
	for kind := range e.lanes {
		q.later.remove(&e.lanes[kind]) // it has another place there
	}
	e.rest = end
	q.reschedule(e)
}
