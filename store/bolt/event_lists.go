package bolt

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// EventByID implements [webhooks.Store].
func (s *Store) EventByID(ctx context.Context, account, eventID string) (found webhooks.EncodedEvent, err error) {
	place := s.ids.find(s.ids.secret.keyOf(account, eventID))
	tx, err := s.view(ctx)
	if err != nil {
		return found, err
	}
	defer s.done(tx, catchFaults(), &err)
	if s.erasing.has(account) {
		return found, webhooks.ErrNotFound
	}
	segment, i, err := readEventID(tx, place, account, eventID)
	if err != nil {
		return found, err
	}
	event, err := segment.Event(i)
	if err != nil {
		return found, err
	}
	found = event.EncodedEvent
	if pack, err := record.DecodePack(bodiesOf(tx, segment)); err == nil {
		found.Body = bytes.Clone(pack.At(i))
	}
	return found, nil
}

// ListEvents implements [webhooks.Store]. The events of an account are found run by run, as the
// deliveries of a webhook are.
func (s *Store) ListEvents(ctx context.Context, account string, query webhooks.EventQuery) (page webhooks.EventPage, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, catchFaults(), &err)
	low, high := between(tx, webhooks.DeliveryQuery{From: query.From, To: query.To})
	if after, ok := s.cursors.Decode(query.After); ok && query.OldestFirst {
		low = max(low, after)
	} else if query.After != "" && !query.OldestFirst {
		high = min(high, after)
	}
	if query.OldestFirst {
		page.Resume = s.cursors.Encode(max(low, high)) // what is published later has higher numbers
	}
	if s.erasing.has(account) {
		return page, nil
	}
	w := &eventWalk{tx: tx, segments: newSegments(tx), account: account, query: &query, indexed: metaNumber(tx, keyEventRuns)}
	for low < high {
		if err := ctx.Err(); err != nil {
			return webhooks.EventPage{}, err
		}
		run := (high - 1) / runSize * runSize
		if query.OldestFirst {
			run = low / runSize * runSize
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
				return s.pageUntil(page, w.resume(n), query.OldestFirst), nil
			}
			page.Events = append(page.Events, event)
		}
		if query.OldestFirst {
			low = run + runSize
		} else {
			high = run
		}
		if w.cost > maxCost && low < high {
			position := high
			if query.OldestFirst {
				position = low
			}
			return s.pageUntil(page, position, query.OldestFirst), nil
		}
	}
	return page, nil
}

// pageUntil returns a page that the one at that position follows.
func (s *Store) pageUntil(page webhooks.EventPage, position uint64, oldestFirst bool) webhooks.EventPage {
	if page.Next = s.cursors.Encode(position); oldestFirst {
		page.Resume = page.Next
	}
	return page
}

// An eventWalk looks for the events of one account.
type eventWalk struct {
	tx       *bbolt.Tx
	segments *segments
	account  string
	query    *webhooks.EventQuery
	indexed  uint64 // the first number that no index was made of
	cost     int
}

// resume returns the position of a page that is to begin with the event of that number.
func (w *eventWalk) resume(n uint64) uint64 {
	if w.query.OldestFirst {
		return n
	}
	return n + 1
}

// within returns the numbers of the account's events of the types asked for in a run, ascending. Of
// a run that cannot be read there are none.
func (w *eventWalk) within(run uint64) (numbers []uint64) {
	if run >= w.indexed {
		var looked int
		numbers, looked = readEventRun(w.tx, run, w.account)
		w.cost += costRecord * looked
		return numbers
	}
	prefix := append(record.NumberKey(run), record.Prefixed(w.account, "")...)
	c := w.tx.Bucket(bucketEventRuns).Cursor()
	for k, value := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, value = c.Next() {
		w.cost += costIndex
		if t := webhooks.EventType(k[len(prefix):]); len(w.query.Types) > 0 && !slices.Contains(w.query.Types, t) {
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

// event returns the event of that number, if it is asked for and can be read.
func (w *eventWalk) event(number uint64) (listed webhooks.StoredEvent, ok bool) {
	w.cost += costDetails
	segment, err := w.segments.at(number)
	if err != nil || segment.Number(segment.Index(number)) != number {
		return listed, false
	}
	event, err := segment.Event(segment.Index(number))
	if err != nil || event.Account != w.account {
		return listed, false
	}
	listed = webhooks.StoredEvent{
		ID: event.ID, Type: event.Type, Timestamp: event.Timestamp, PublishedAt: event.PublishedAt, HasBody: bodiesOf(w.tx, segment) != nil,
	}
	return listed, w.query.Matches(&listed)
}

// readEventRun returns the numbers of an account's events in a run, and how many events it has looked at.
func readEventRun(tx *bbolt.Tx, run uint64, account string) (numbers []uint64, looked int) {
	eachEvent(tx, run, func(number uint64, event *record.Event) {
		if looked++; event.Account == account {
			numbers = append(numbers, number)
		}
	})
	return numbers, looked
}

// eachEvent calls visit with the events of a run that can be read.
func eachEvent(tx *bbolt.Tx, run uint64, visit func(number uint64, event *record.Event)) {
	for segment := range newSegments(tx).from(run) {
		if segment.First >= run+runSize {
			return
		}
		for i := max(0, segment.Index(run)); i < segment.Len(); i++ {
			if n := segment.Number(i); n >= run && n < run+runSize {
				if event, err := segment.Event(i); err == nil {
					visit(n, &event)
				}
			}
		}
	}
}

// indexEvents makes the index by account of the first complete run that has none, and tells whether
// there was one.
func indexEvents(b *batch) (made bool, err error) {
	first, _ := bounds(b.tx)
	run := max(metaNumber(b.tx, keyEventRuns), first/runSize*runSize)
	if run+runSize > b.tx.Bucket(bucketEvents).Sequence()+1 {
		return false, nil
	}
	all := make(map[string][]uint64)
	eachEvent(b.tx, run, func(number uint64, event *record.Event) {
		key := string(eventRunKey(run, event.Account, event.Type))
		all[key] = append(all[key], number)
	})
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if err := b.Append(bucketEventRuns, []byte(key), record.EncodeRun(run, all[key])); err != nil {
			return false, err
		}
	}
	return true, b.Put(bucketMeta, keyEventRuns, record.NumberKey(run+runSize))
}

func eventRunKey(run uint64, account string, of webhooks.EventType) []byte {
	return append(record.NumberKey(run), record.Prefixed(account, string(of))...)
}
