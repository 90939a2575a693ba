package bolt

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// runSize is how many numbers make a run. The deliveries of one webhook are found run by
// run: in the index that is made of each complete run, or else in all segments of the run.
// Such an index costs a page for each webhook and run; one that is kept with each event
// would cost a page for each delivery.
const runSize = 8192

// A list page takes some tens of milliseconds at most: longer transactions pin
// pages. Costs are in about microseconds, and rather too high.
const (
	maxCost     = 50_000
	maxStepCost = 5_000 // in a step of the writer, which keeps others waiting
	costRecord  = 1     // to look at one
	costIndex   = 5     // to look up a run
	costDetails = 10    // to put a delivery together
)

// A walk looks for the deliveries of one webhook.
type walk struct {
	store    *Store
	tx       *bbolt.Tx
	segments *segments
	webhook  string
	indexed  uint64 // the first number that no index was made of
	cost     int
}

func (s *Store) newWalk(tx *bbolt.Tx, webhook string) *walk {
	return &walk{store: s, tx: tx, segments: newSegments(tx), webhook: webhook, indexed: metaNumber(tx, keyRuns)}
}

// metaNumber reads a number from bucketMeta.
func metaNumber(tx *bbolt.Tx, key []byte) uint64 {
	if v := tx.Bucket(bucketMeta).Get(key); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// within returns the numbers of the webhook's deliveries in the run that begins there,
// ascending.
func (w *walk) within(run uint64) ([]uint64, error) {
	if run < w.indexed {
		w.cost += costIndex
		return record.DecodeRun(run, w.tx.Bucket(bucketRuns).Get(runKey(run, w.webhook)))
	}
	all := make(map[string][]uint64)
	w.cost += costRecord * readRun(w.tx, run, w.webhook, all)
	return all[w.webhook], nil
}

// delivery puts a delivery together; ok is false if there is none, or none that can
// be read.
func (w *walk) delivery(number uint64) (d webhooks.Delivery, ok bool) {
	w.cost += costDetails
	segment, err := w.segments.at(number)
	if err != nil {
		return d, false
	}
	event, err := segment.Event(segment.Index(number))
	if err != nil {
		return d, false
	}
	d, err = w.store.deliveryOf(w.tx, segment, &event, number, w.webhook)
	return d, err == nil && d.State != ""
}

// hasBody reports whether the delivery's event still has its body.
func (w *walk) hasBody(number uint64) bool {
	segment, err := w.segments.at(number)
	return err == nil && bodiesOf(w.tx, segment) != nil
}

// ListDeliveries implements [webhooks.Store].
func (s *Store) ListDeliveries(ctx context.Context, account, webhookID string, query webhooks.DeliveryQuery) (page webhooks.DeliveryPage, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, catchFaults(), &err)
	if tx.Bucket(bucketWebhooks).Get(record.Prefixed(account, webhookID)) == nil || s.erasing.has(account) {
		return page, webhooks.ErrNotFound
	}
	low, high := between(tx, query)
	if query.After != "" {
		after, _ := s.cursors.Decode(query.After)
		high = min(high, after)
	}
	w := s.newWalk(tx, webhookID)
	whole := query.Failed && len(query.States) == 0 // no page is cut short
	for high > low {
		if err := ctx.Err(); err != nil {
			return webhooks.DeliveryPage{}, err
		}
		run := (high - 1) / runSize * runSize
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
				page.Next = s.cursors.Encode(n + 1)
				return page, nil
			}
			d, ok := w.delivery(n)
			if !ok || !query.Matches(&d) {
				continue
			}
			if len(page.Deliveries) == query.Limit {
				page.Next = s.cursors.Encode(n + 1)
				return page, nil
			}
			page.Deliveries = append(page.Deliveries, d)
		}
		if high = run; w.cost > maxCost && !whole && high > low {
			page.Next = s.cursors.Encode(high)
			return page, nil
		}
	}
	return page, nil
}

// between returns the numbers of the events that were published in the query's
// time: from low, and before high.
func between(tx *bbolt.Tx, query webhooks.DeliveryQuery) (low, high uint64) {
	low, high = bounds(tx)
	if !query.From.IsZero() {
		low = firstSince(tx, query.From)
	}
	if !query.To.IsZero() {
		high = endBefore(tx, query.To)
	}
	return low, high
}

// readRun adds the numbers of a run's deliveries by webhook, or only those of the webhook
// that is given, and returns how many it has looked at.
func readRun(tx *bbolt.Tx, run uint64, webhook string, numbers map[string][]uint64) (looked int) {
	for segment := range newSegments(tx).from(run) {
		if segment.First >= run+runSize {
			break
		}
		for i := range segment.Len() {
			for number, id := range segment.Recipients(i) {
				looked++
				if number >= run && number < run+runSize && (webhook == "" || string(id) == webhook) {
					numbers[string(id)] = append(numbers[string(id)], number)
				}
			}
		}
	}
	return looked
}

// indexRun makes the index of the first complete run that has none, and tells
// whether there was one.
func indexRun(b *batch) (made bool, err error) {
	run := metaNumber(b.tx, keyRuns)
	if run+runSize > b.tx.Bucket(bucketEvents).Sequence()+1 {
		return false, nil
	}
	all := make(map[string][]uint64)
	readRun(b.tx, run, "", all)
	for _, webhook := range slices.Sorted(maps.Keys(all)) {
		if err := b.Append(bucketRuns, runKey(run, webhook), record.EncodeRun(run, all[webhook])); err != nil {
			return false, err
		}
	}
	b.noteSkipped(run)
	return true, b.Put(bucketMeta, keyRuns, record.NumberKey(run+runSize))
}

func runKey(run uint64, webhook string) []byte { return append(record.NumberKey(run), webhook...) }
