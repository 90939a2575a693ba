package bolt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/webhooks"
)

const (
	pageDeliveries = 4096                 // deliveries in a page, and up to a segment more
	pageTime       = 5 * time.Millisecond // for reading a page, and up to a segment more
	troublePause   = time.Second          // before what could not be read is read again
)

// Deliver implements [webhooks.Deliveries]. Steps report in the order of their commits, before
// their callers return.
func (s *Store) Deliver(ctx context.Context, to webhooks.Scheduler) error {
	if err := s.takeTurn(ctx, s.delivering); err != nil {
		return err
	}
	defer func() { <-s.delivering }()
	s.feed.begin(to)
	defer s.feed.end()
	r := pager{store: s, scheduler: to, left: everything}
	for more := true; more; {
		var pause time.Duration
		if pause, more = r.read(ctx); !more {
			to.Trouble(nil)
			break
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			more = false
		case <-s.closing:
			more = false
		}
		timer.Stop()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return store.ErrClosed
	}
}

// takeTurn waits until turn, a channel of one, has room.
func (s *Store) takeTurn(ctx context.Context, turn chan struct{}) error {
	tx, err := s.view(ctx) // says whether ctx is done or the store closed
	if err != nil {
		return err
	}
	_ = tx.Rollback()
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return store.ErrClosed
	}
}

// A pager reports what was stored when Deliver began, in pages, each of a transaction of its
// own. It reads eventlog.AsPublished before eventlog.Attempted, since rows move only in that direction.
type pager struct {
	store     *Store
	scheduler webhooks.Scheduler
	left      [2]eventlog.Range // of each bucket
	bounded   bool              // left ends with the last number that was given when Deliver began
	troubled  bool              // Trouble was reported
	page      []webhooks.PendingDelivery
}

// read reports a page, and returns whether there is more, and after what pause. A bucket that
// cannot be read does not keep the other from being read.
func (p *pager) read(ctx context.Context) (pause time.Duration, more bool) {
	began := time.Now()
	failed := false
	for bucket := range p.left {
		if p.left[bucket].IsEmpty() {
			continue
		}
		err := p.readPage(ctx, bucket)
		if err == nil {
			p.store.feed.setLeft(p.left)
			return time.Since(began), true
		}
		if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			return 0, true
		}
		if failed = true; !p.troubled {
			p.troubled = true
			p.scheduler.Trouble(err)
		}
	}
	return troublePause, failed
}

func (p *pager) readPage(ctx context.Context, bucket int) (err error) {
	began := time.Now()
	version := p.store.webhookRows.Version()
	tx, err := p.store.view(ctx)
	if err != nil {
		return err
	}
	defer p.store.done(tx, catchFaults(), &err)
	if !p.bounded {
		last := tx.Bucket(bucketEvents).Sequence()
		p.left, p.bounded = [2]eventlog.Range{{Last: last}, {Last: last}}, true
	}
	r := p.store.newPendingReader(tx, version, func(d webhooks.PendingDelivery) { p.page = append(p.page, d) })
	r.Full = func() bool { return len(p.page) >= pageDeliveries || time.Since(began) > pageTime }
	p.page = p.page[:0]
	left := r.Read(bucket, p.left[bucket])
	if bucket == eventlog.Attempted { // a scheduler may look for what it knows of a webhook's deliveries once for all in a row
		slices.SortStableFunc(p.page, func(a, b webhooks.PendingDelivery) int { return strings.Compare(a.Webhook.ID, b.Webhook.ID) })
	}
	if len(p.page) > 0 {
		p.scheduler.Add(p.page)
	}
	p.left[bucket] = left
	return nil
}
