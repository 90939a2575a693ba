package bolt

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/feed"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

const (
	pageDeliveries = 4096                 // per page; a page may exceed it by a segment
	pageTime       = 5 * time.Millisecond // time to read a page; a page may exceed it by a segment
	troublePause   = time.Second          // pause before reading an unreadable page again
)

// Deliver implements [driver.Deliveries]. Changes are reported to the scheduler in the order of
// their commits, before the methods that make them return.
func (s *engine) Deliver(ctx context.Context, to driver.Scheduler) error {
	if err := s.takeTurn(ctx, s.delivering); err != nil {
		return err
	}
	defer func() { <-s.delivering }()
	s.feed.Begin(to)
	defer s.feed.End()
	r := pager{store: s, scheduler: to, left: feed.Everything(math.MaxUint64)}
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

// A pager reports the deliveries that were pending when Deliver began. It reads one page per
// transaction. It reads the bucket eventlog.AsPublished before eventlog.Attempted, because rows
// move only in that direction.
type pager struct {
	store     *engine
	scheduler driver.Scheduler
	left      feed.Ranges // numbers still to read
	bounded   bool        // left ends at the last number that was assigned when Deliver began
	troubled  bool        // whether Trouble was called with an error
	page      []driver.PendingDelivery
}

// read reads a page and adds its deliveries to the scheduler. It returns the pause before the next
// page; more is false if there is no next page. If one bucket is unreadable, read still reads the
// other.
func (p *pager) read(ctx context.Context) (pause time.Duration, more bool) {
	began := time.Now()
	failed := false
	for bucket := range p.left {
		if p.left[bucket].IsEmpty() {
			continue
		}
		err := p.readPage(ctx, bucket)
		if err == nil {
			p.store.feed.SetLeft(p.left)
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
	version := p.store.webhookRows.version()
	tx, err := p.store.view(ctx)
	if err != nil {
		return err
	}
	defer p.store.done(tx, catchFaults(), &err)
	if !p.bounded {
		last := tx.Bucket(schema.Events).Sequence()
		p.left, p.bounded = feed.Everything(last), true
	}
	r := p.store.newPendingReader(tx, version, func(d driver.PendingDelivery) { p.page = append(p.page, d) })
	r.Full = func() bool { return len(p.page) >= pageDeliveries || time.Since(began) > pageTime }
	p.page = p.page[:0]
	left := r.Read(bucket, p.left[bucket])
	if bucket == eventlog.Attempted { // group by webhook, so that the scheduler looks up each webhook once
		slices.SortStableFunc(p.page, func(a, b driver.PendingDelivery) int { return strings.Compare(a.Webhook.ID, b.Webhook.ID) })
	}
	if len(p.page) > 0 {
		p.scheduler.Add(p.page)
	}
	p.left[bucket] = left
	return nil
}

// newPendingReader returns a reader that calls visit with each pending delivery whose webhook
// exists. version must be the version of webhookRows from before tx began.
func (s *engine) newPendingReader(tx *bbolt.Tx, version uint64, visit func(driver.PendingDelivery)) *eventlog.PendingReader {
	hooks := make(map[string]*driver.Webhook) // nil if deleted, or if its account is being erased
	return &eventlog.PendingReader{View: s.log.View(tx), Now: time.Now(), Visit: func(webhook []byte, d driver.PendingDelivery) {
		w, known := hooks[string(webhook)]
		if !known {
			if found := s.webhookRows.seen(tx, version, string(webhook)); found != nil && !s.erasing.has(found.Account) {
				w = &found.Webhook
			}
			hooks[string(webhook)] = w
		}
		if d.Webhook = w; w != nil {
			visit(d)
		}
	}}
}

// Unreported implements [driver.Deliveries].
func (s *engine) Unreported(ctx context.Context, webhookID string) (backlog driver.Backlog, err error) {
	if err := s.writer.Applied(ctx); err != nil {
		return driver.Backlog{}, err
	}
	err = s.eachPending(ctx, s.feed.Unreported(), func(now time.Time, d driver.PendingDelivery) {
		if webhookID != "" && d.Webhook.ID != webhookID {
			return
		}
		backlog.Pending++
		if d.Webhook.Claimable() && !d.Webhook.Paused(now) && !d.Due.After(now) && (backlog.OldestDue.IsZero() || d.Due.Before(backlog.OldestDue)) {
			backlog.OldestDue = d.Due
		}
	})
	if err != nil {
		return driver.Backlog{}, err
	}
	if !backlog.OldestDue.IsZero() {
		backlog.OldestDue = record.Round(backlog.OldestDue)
	}
	if webhookID == "" {
		backlog.Held, err = s.countHeld(ctx)
	}
	return backlog, err
}

// eachPending calls visit with the pending deliveries in the given ranges.
func (s *engine) eachPending(ctx context.Context, ranges feed.Ranges, visit func(now time.Time, d driver.PendingDelivery)) (err error) {
	version := s.webhookRows.version()
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	defer s.done(tx, catchFaults(), &err)
	now := time.Now()
	r := s.newPendingReader(tx, version, func(d driver.PendingDelivery) { visit(now, d) })
	r.Full = func() bool { return ctx.Err() != nil }
	for bucket, numbers := range ranges {
		if !numbers.IsEmpty() {
			r.Read(bucket, numbers)
		}
	}
	return ctx.Err()
}

// Ping implements [driver.Deliveries].
func (s *engine) Ping(ctx context.Context) (err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	defer s.done(tx, catchFaults(), &err)
	if tx.Bucket(schema.Meta).Get(schema.MetaSchema) == nil {
		return pagefile.ErrSchema
	}
	return nil
}
