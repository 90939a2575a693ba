package bolt

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/webhooks"
)

// runSize is how many events make a run. What was published to one webhook is
// looked for run by run: in the index made of a run once it is complete, which
// costs a page a webhook and run, where an index kept up with each event would
// cost a page a delivery; or else in all records of the run.
const runSize = 4096

// A list page takes some tens of milliseconds at most: longer transactions pin
// pages. Costs are in about microseconds.
const (
	maxCost     = 50_000
	maxStepCost = 5_000 // in a step of the writer, which keeps others waiting
	costRecord  = 1     // to look at one
	costIndex   = 5     // to look up a run
	costDetails = 10    // to put a delivery together
)

// A walk looks for the deliveries of one webhook.
type walk struct {
	tx      *bbolt.Tx
	webhook string
	indexed uint64 // the first number that no index was made of
	first   uint64 // there are no events before
	cost    int
}

func newWalk(tx *bbolt.Tx, webhook string) *walk {
	w := &walk{tx: tx, webhook: webhook, indexed: number(tx, keyRuns)}
	if first, _ := tx.Bucket(bucketEvents).Cursor().First(); first != nil {
		w.first = binary.BigEndian.Uint64(first)
	}
	return w
}

// number reads a number from bucketMeta.
func number(tx *bbolt.Tx, key []byte) uint64 {
	if v := tx.Bucket(bucketMeta).Get(key); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// within returns the numbers of the webhook's events in the run that begins there,
// ascending.
func (w *walk) within(run uint64) ([]uint64, error) {
	if run < w.indexed {
		w.cost += costIndex
		return decodeRun(run, w.tx.Bucket(bucketRuns).Get(seqKey(run, w.webhook)))
	}
	all, records, err := readRun(w.tx, run, w.webhook)
	w.cost += records * costRecord
	return all[w.webhook], err
}

// delivery puts a delivery together; ok is false if there is none, or none that can
// be read.
func (w *walk) delivery(seq uint64) (d webhooks.Delivery, ok bool) {
	w.cost += costDetails
	d, err := deliveryOf(w.tx, seq, w.webhook)
	return d, err == nil && d.State != ""
}

// ListDeliveries implements [webhooks.Store].
func (s *Store) ListDeliveries(ctx context.Context, account, webhookID string, query webhooks.DeliveryQuery) (page webhooks.DeliveryPage, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, &err)
	if tx.Bucket(bucketWebhooks).Get(prefixed(account, webhookID)) == nil {
		return page, webhooks.ErrNotFound
	}
	low, high := between(tx, query)
	if query.After != "" {
		after, _ := s.cursors.Open(query.After)
		high = min(high, after)
	}
	w := newWalk(tx, webhookID)
	low = max(low, w.first)
	for high > low {
		run := (high - 1) / runSize * runSize
		seqs, err := w.within(run)
		if err != nil {
			return page, err
		}
		for _, seq := range slices.Backward(seqs) {
			if seq < low || seq >= high {
				continue
			}
			if w.cost > maxCost {
				page.Next = s.cursors.Seal(seq + 1)
				return page, nil
			}
			d, ok := w.delivery(seq)
			if !ok || !query.Matches(&d) {
				continue
			}
			if len(page.Deliveries) == query.Limit {
				page.Next = s.cursors.Seal(seq + 1)
				return page, nil
			}
			page.Deliveries = append(page.Deliveries, d)
		}
		if high = run; w.cost > maxCost && high > low {
			page.Next = s.cursors.Seal(high)
			return page, nil
		}
	}
	return page, nil
}

// between returns the numbers of the events that were published in the query's
// time: from low, and before high.
func between(tx *bbolt.Tx, query webhooks.DeliveryQuery) (low, high uint64) {
	if last, _ := tx.Bucket(bucketEvents).Cursor().Last(); last != nil {
		high = binary.BigEndian.Uint64(last) + 1
	}
	if !query.From.IsZero() {
		low = firstSince(tx, query.From)
	}
	if !query.To.IsZero() {
		high = firstSince(tx, query.To)
	}
	return low, high
}

// readRun reads which events of a run are for which webhooks, or only for the one
// given, and how many records it has looked at.
func readRun(tx *bbolt.Tx, run uint64, webhook string) (seqs map[string][]uint64, records int, err error) {
	seqs = make(map[string][]uint64)
	for _, bucket := range [][]byte{bucketOwed, bucketSkipped, bucketAttempts} {
		c := tx.Bucket(bucket).Cursor()
		for k, _ := c.Seek(seqKey(run, "")); k != nil; k, _ = c.Next() {
			seq, _, ok := splitSeq(k)
			if !ok || seq >= run+runSize {
				break
			}
			records++
			id, err := webhookIn(bucket, k)
			if err != nil {
				return nil, records, err
			}
			if webhook == "" || id == webhook {
				seqs[id] = append(seqs[id], seq)
			}
		}
	}
	for id, list := range seqs {
		slices.Sort(list)
		seqs[id] = slices.Compact(list)
	}
	return seqs, records, nil
}

// indexRun makes the index of the first complete run that has none, and tells
// whether there was one.
func indexRun(b *batch) (made bool, err error) {
	run := number(b.tx, keyRuns)
	if run+runSize > b.tx.Bucket(bucketEvents).Sequence()+1 {
		return false, nil
	}
	all, _, err := readRun(b.tx, run, "")
	if err != nil {
		return false, err
	}
	for _, webhook := range slices.Sorted(maps.Keys(all)) {
		if err := b.add(bucketRuns, seqKey(run, webhook), encodeRun(run, all[webhook])); err != nil {
			return false, err
		}
	}
	return true, b.put(bucketMeta, keyRuns, seqKey(run+runSize, ""))
}

// An index record lists numbers by their distances.
func encodeRun(run uint64, seqs []uint64) []byte {
	e := newEncoder(2 * len(seqs))
	for _, seq := range seqs {
		e.uint(seq - run)
		run = seq
	}
	return e
}

func decodeRun(run uint64, record []byte) (seqs []uint64, err error) {
	if record == nil {
		return nil, nil
	}
	d := newDecoder(record)
	for len(d.rest) > 0 && !d.failed {
		run += d.uint()
		seqs = append(seqs, run)
	}
	return seqs, d.err()
}
