package eventlog

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// ListEvents returns a page of an account's events. It searches run by run, as ListDeliveries does.
func (v *View) ListEvents(ctx context.Context, account string, query driver.EventQuery) (page driver.EventPage, err error) {
	low, high := between(v.tx, query.From, query.To)
	cursors := v.log.options.Cursors
	if after, ok := cursors.Decode(query.After); ok && query.OldestFirst {
		low = max(low, after)
	} else if query.After != "" && !query.OldestFirst {
		high = min(high, after)
	}
	if query.OldestFirst {
		page.Resume = cursors.Encode(max(low, high)) // later events get greater numbers
	}
	if v.log.options.Erasing(account) {
		return page, nil
	}
	pageUntil := func(position uint64) (driver.EventPage, error) {
		if page.Next = cursors.Encode(position); query.OldestFirst {
			page.Resume = page.Next
		}
		return page, nil
	}
	w := &eventWalk{View: v, account: account, query: &query, indexed: Number(v.tx, schema.MetaEventRuns)}
	for low < high {
		if err := ctx.Err(); err != nil {
			return driver.EventPage{}, err
		}
		run := (high - 1) / RunSize * RunSize
		if query.OldestFirst {
			run = low / RunSize * RunSize
		}
		numbers := w.within(run)
		if !query.OldestFirst {
			slices.Reverse(numbers)
		}
		for _, n := range numbers {
			if n < low || n >= high {
				continue
			}
			event, ok := w.event(n)
			if !ok {
				continue
			}
			if len(page.Events) == query.Limit {
				return pageUntil(w.resume(n))
			}
			page.Events = append(page.Events, event)
		}
		if query.OldestFirst {
			low = run + RunSize
		} else {
			high = run
		}
		if w.cost > maxCost && low < high {
			position := high
			if query.OldestFirst {
				position = low
			}
			return pageUntil(position)
		}
	}
	return page, nil
}

// An eventWalk searches the events of one account.
type eventWalk struct {
	*View
	account string
	query   *driver.EventQuery
	indexed uint64 // the first number that is not indexed yet
	cost    int
}

// resume returns the cursor position of a page whose first event has the number n.
func (w *eventWalk) resume(n uint64) uint64 {
	if w.query.OldestFirst {
		return n
	}
	return n + 1
}

// within returns the numbers of the account's events in a run, ascending. If the run is indexed,
// within omits events whose types do not match the query, and events in unreadable index rows.
func (w *eventWalk) within(run uint64) (numbers []uint64) {
	if run >= w.indexed {
		var looked int
		numbers, looked = readEventRun(w.tx, run, w.account)
		w.cost += costRecord * looked
		return numbers
	}
	prefix := append(record.NumberKey(run), record.Prefixed(w.account, "")...)
	c := w.tx.Bucket(schema.EventRuns).Cursor()
	for k, value := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, value = c.Next() {
		w.cost += costIndex
		if t := driver.EventType(k[len(prefix):]); len(w.query.Types) > 0 && !slices.Contains(w.query.Types, t) {
			continue
		}
		if of, err := record.DecodeRun(run, value); err == nil {
			numbers = append(numbers, of...)
		}
	}
	w.cost += costIndex
	slices.Sort(numbers)
	return numbers
}

// event returns an event. ok is false if the event is unreadable or does not match the query.
func (w *eventWalk) event(number uint64) (listed driver.StoredEvent, ok bool) {
	w.cost += costDetails
	segment, err := w.segments.At(number)
	if err != nil {
		return listed, false
	}
	i := segment.Index(number)
	if segment.Number(i) != number {
		return listed, false
	}
	event, err := segment.Event(i)
	if err != nil || event.Account != w.account {
		return listed, false
	}
	if w.query.WebhookID != "" {
		if _, ok = segment.DeliveryTo(i, w.query.WebhookID); !ok {
			return listed, false
		}
	}
	listed = driver.StoredEvent{
		ID: event.ID, Type: event.Type, Resource: event.Resource, Timestamp: event.Timestamp, PublishedAt: event.PublishedAt, HasBody: bodiesOf(w.tx, segment) != nil,
	}
	return listed, w.query.Matches(&listed)
}

// readEventRun reads a run. It returns the numbers of the account's events, and the number of
// events read.
func readEventRun(tx *bbolt.Tx, run uint64, account string) (numbers []uint64, looked int) {
	eachEvent(tx, run, run+RunSize, func(number uint64, event *record.Event) {
		if looked++; event.Account == account {
			numbers = append(numbers, number)
		}
	})
	return numbers, looked
}

// eachEvent calls visit with the readable events whose numbers are in [from, to).
func eachEvent(tx *bbolt.Tx, from, to uint64, visit func(number uint64, event *record.Event)) {
	for segment := range NewSegments(tx).from(from) {
		if segment.First >= to {
			return
		}
		for i := max(0, segment.Index(from)); i < segment.Len(); i++ {
			if n := segment.Number(i); n >= from && n < to {
				if event, err := segment.Event(i); err == nil {
					visit(n, &event)
				}
			}
		}
	}
}

// indexEvents indexes the events of the first complete run that is not indexed yet. It reports
// whether there was such a run.
func (s *Step) indexEvents() (made bool, err error) {
	first, _ := bounds(s.tx)
	run := max(Number(s.tx, schema.MetaEventRuns), first/RunSize*RunSize)
	if run+RunSize > s.tx.Bucket(schema.Events).Sequence()+1 {
		return false, nil
	}
	all := make(map[string][]uint64)
	eachEvent(s.tx, run, run+RunSize, func(number uint64, event *record.Event) {
		key := string(eventRunKey(run, event.Account, event.Type))
		all[key] = append(all[key], number)
	})
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if err := s.Append(schema.EventRuns, []byte(key), record.EncodeRun(run, all[key])); err != nil {
			return false, err
		}
	}
	return true, s.Put(schema.Meta, schema.MetaEventRuns, record.NumberKey(run+RunSize))
}

func eventRunKey(run uint64, account string, of driver.EventType) []byte {
	return append(record.NumberKey(run), record.Prefixed(account, string(of))...)
}
