package eventlog

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// RunSize is the length of a run of numbers. A search for a webhook's deliveries goes run by run. A
// complete run has an index. In the last run, which is incomplete, the search reads all segments.
// An index per run costs one page per webhook and run; an index per event would cost one page per
// delivery.
const RunSize = 8192

// Limits on the work for one page of a list. A page takes some tens of milliseconds at most,
// because a longer transaction would keep freed pages from being reused. Costs are in
// microseconds, estimated high.
const (
	maxCost     = 50_000
	maxStepCost = 5_000 // in a write transaction, which delays the next one
	costRecord  = 1     // reading a record
	costIndex   = 5     // looking up the index row of a run
	costDetails = 10    // assembling a delivery
)

// A walk searches the deliveries of one webhook.
type walk struct {
	*View
	webhook string
	indexed uint64 // the first number that is not indexed yet
	cost    int
}

func (v *View) walk(webhook string) *walk {
	return &walk{View: v, webhook: webhook, indexed: Number(v.tx, schema.MetaRuns)}
}

// within returns the numbers of the webhook's deliveries in the run that begins at run, ascending.
func (w *walk) within(run uint64) ([]uint64, error) {
	if run < w.indexed {
		w.cost += costIndex
		return record.DecodeRun(run, w.tx.Bucket(schema.Runs).Get(runKey(run, w.webhook)))
	}
	all := make(map[string][]uint64)
	w.cost += costRecord * readRun(w.tx, run, w.webhook, all)
	return all[w.webhook], nil
}

// delivery returns a delivery. ok is false if it does not exist or is unreadable.
func (w *walk) delivery(number uint64) (d driver.Delivery, ok bool) {
	w.cost += costDetails
	segment, err := w.segments.At(number)
	if err != nil {
		return d, false
	}
	event, err := segment.Event(segment.Index(number))
	if err != nil {
		return d, false
	}
	d, err = w.log.deliveryOf(w.tx, segment, &event, number, w.webhook)
	return d, err == nil && d.State != ""
}

// hasBody reports whether the delivery's event still has its body.
func (w *walk) hasBody(number uint64) bool {
	segment, err := w.segments.At(number)
	return err == nil && bodiesOf(w.tx, segment) != nil
}

// ListDeliveries returns a page of a webhook's deliveries.
func (v *View) ListDeliveries(ctx context.Context, webhook string, query driver.DeliveryQuery) (page driver.DeliveryPage, err error) {
	low, high := between(v.tx, query.From, query.To)
	cursors := v.log.options.Cursors
	if query.After != "" {
		after, _ := cursors.Decode(query.After)
		high = min(high, after)
	}
	w := v.walk(webhook)
	whole := query.FullPages()
	for high > low {
		if err := ctx.Err(); err != nil {
			return driver.DeliveryPage{}, err
		}
		run := (high - 1) / RunSize * RunSize
		var numbers []uint64
		if query.OnlyFailed() {
			run, numbers, err = w.failed(high)
		} else {
			numbers, err = w.within(run)
		}
		if err != nil {
			return page, err
		}
		for _, n := range slices.Backward(numbers) {
			if n < low || n >= high {
				continue
			}
			if w.cost > maxCost && !whole {
				page.Next = cursors.Encode(n + 1)
				return page, nil
			}
			d, ok := w.delivery(n)
			if !ok || !query.Matches(&d) {
				continue
			}
			if len(page.Deliveries) == query.Limit {
				page.Next = cursors.Encode(n + 1)
				return page, nil
			}
			page.Deliveries = append(page.Deliveries, d)
		}
		if high = run; w.cost > maxCost && !whole && high > low {
			page.Next = cursors.Encode(high)
			return page, nil
		}
	}
	return page, nil
}

// Walk examines up to limit deliveries of the webhook, ascending, starting at from. It calls visit
// with the deliveries that match the query and whose body is stored. It returns the number to
// continue with, and whether it has reached the end.
func (v *View) Walk(webhook string, query *driver.DeliveryQuery, from uint64, limit int, visit func(number uint64, d *driver.Delivery) error) (next uint64, done bool, err error) {
	low, high := between(v.tx, query.From, query.To)
	w := v.walk(webhook)
	next = from
	for low = max(low, from); low < high; {
		run := low / RunSize * RunSize
		numbers, err := w.within(run)
		if err != nil {
			return 0, false, err
		}
		for _, n := range numbers {
			if n < low || n >= high {
				continue
			}
			if limit--; limit < 0 {
				return n, false, nil
			}
			d, ok := w.delivery(n)
			if !ok || !query.Matches(&d) || !w.hasBody(n) {
				continue
			}
			if err := visit(n, &d); err != nil {
				return 0, false, err
			}
		}
		low = run + RunSize
		if next = low; w.cost > maxStepCost {
			return next, false, nil
		}
	}
	return next, true, nil
}

// NextEvent returns the ID of the first event that has a delivery to the webhook whose number is
// from or higher, or "" if there is none. It skips events whose ID has been purged.
func (v *View) NextEvent(webhook string, from uint64) string {
	gone := Number(v.tx, schema.MetaIDsGone)
	for segment := range v.segments.from(max(from, gone)) {
		for i := max(0, segment.Index(from)); i < segment.Len(); i++ {
			number, ok := segment.DeliveryTo(i, webhook)
			if !ok || number < from || segment.Number(i) < gone {
				continue
			}
			event, err := segment.Event(i)
			if err != nil || event.Forgotten {
				continue
			}
			if d, err := v.log.deliveryOf(v.tx, segment, &event, number, webhook); err == nil && d.State != "" {
				return event.ID
			}
		}
	}
	return ""
}

// between returns the range of numbers, [low, high), of events published in a period.
func between(tx *bbolt.Tx, from, to time.Time) (low, high uint64) {
	low, high = bounds(tx)
	if !from.IsZero() {
		low = firstSince(tx, from)
	}
	if !to.IsZero() {
		high = endBefore(tx, to)
	}
	return low, high
}

// readRun reads a run and adds the numbers of its deliveries to numbers, by webhook. If webhook is
// not empty, it adds only the deliveries to that webhook. It returns the number of deliveries
// read.
func readRun(tx *bbolt.Tx, run uint64, webhook string, numbers map[string][]uint64) (looked int) {
	for segment := range NewSegments(tx).from(run) {
		if segment.First >= run+RunSize {
			break
		}
		for i := range segment.Len() {
			for number, id := range segment.Recipients(i) {
				looked++
				if number >= run && number < run+RunSize && (webhook == "" || string(id) == webhook) {
					numbers[string(id)] = append(numbers[string(id)], number)
				}
			}
		}
	}
	return looked
}

// Index indexes the first complete run that is not indexed yet. It reports whether there was such
// a run. The batch must be flushed.
func (s *Step) Index() (made bool, err error) {
	if made, err = s.indexRun(); !made && err == nil {
		made, err = s.indexEvents()
	}
	return made, err
}

// indexRun indexes the deliveries of the first complete run that is not indexed yet. It reports
// whether there was such a run.
func (s *Step) indexRun() (made bool, err error) {
	run := Number(s.tx, schema.MetaRuns)
	if run+RunSize > s.tx.Bucket(schema.Events).Sequence()+1 {
		return false, nil
	}
	all := make(map[string][]uint64)
	readRun(s.tx, run, "", all)
	for _, webhook := range slices.Sorted(maps.Keys(all)) {
		if err := s.Append(schema.Runs, runKey(run, webhook), record.EncodeRun(run, all[webhook])); err != nil {
			return false, err
		}
	}
	s.noteSkipped(run)
	return true, s.Put(schema.Meta, schema.MetaRuns, record.NumberKey(run+RunSize))
}

// runKey returns the key of a webhook's row in schema.Runs.
func runKey(run uint64, webhook string) []byte { return append(record.NumberKey(run), webhook...) }
