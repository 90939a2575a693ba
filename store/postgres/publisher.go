package postgres

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

const (
	maxSenders    = 2                     // batches that are stored at the same time: while one is synced to disk the next is stored
	maxBatch      = 256                   // events in a batch
	maxBatchBytes = 1 << 20               // of their bodies, without the last one
	maxAlone      = 2                     // connections for events that were refused, and as many for those that wait for locks
	heldPause     = 50 * time.Millisecond // before a retry of what waits for a lock
)

// A publisher stores events in batches (group commit), each in one statement and one
// commit. Calls that arrive while maxSenders batches are being stored share the next one.
// The publisher has no goroutine while there are no calls.
type publisher struct {
	store *Store

	mu        sync.Mutex
	waiting   []*publication
	senders   int
	gathering bool // a sender is about to take the waiting events

	refused chan struct{} // first tries alone of events that a batch did not store
	held    chan struct{} // retries of events that wait for locks
}

// A publication is an event that is published in a batch.
type publication struct {
	*webhooks.EncodedEvent

	// The result, once done is closed.
	stored     bool // else it must be stored alone
	deliveries int
	err        error // of the batch
	done       chan struct{}
}

func (p *publisher) start(s *Store) {
	p.store = s
	p.refused, p.held = make(chan struct{}, maxAlone), make(chan struct{}, maxAlone)
}

// publish stores an event: alone if there are no other calls, or else in a batch. An event
// that its batch could not store, perhaps because of another event, is stored alone. An
// event that has to wait for a transaction of the host waits without delaying others.
func (p *publisher) publish(ctx context.Context, encoded *webhooks.EncodedEvent) (deliveries int, err error) {
	ctx, cancel := within(ctx, patience)
	defer cancel()
	event := &publication{EncodedEvent: encoded, done: make(chan struct{})}
	if p.enter() {
		deliveries, err = p.alone(ctx, event)
		p.leave()
	} else {
		if err := p.share(ctx, event); err != nil {
			return 0, err // perhaps before the result was known
		}
		if event.stored {
			return event.deliveries, nil
		}
		deliveries, err = p.inTurn(ctx, p.refused, event)
	}
	for code(err) == lockNotAvailable {
		if sleep(ctx, nil, heldPause) {
			deliveries, err = p.inTurn(ctx, p.held, event)
		} else {
			err = failure(ctx, ctx.Err())
		}
	}
	if err != nil && errors.Is(event.err, auth.ErrInterrupted) {
		return 0, event.err // the batch may have stored it, which the later error must not hide
	}
	return deliveries, err
}

// share has an event stored in a batch. Once the batch is being stored, a cancelled ctx has no
// effect: the result says what happened.
func (p *publisher) share(ctx context.Context, event *publication) error {
	if err := ctx.Err(); err != nil {
		return failure(ctx, err)
	}
	p.mu.Lock()
	p.waiting = append(p.waiting, event)
	p.begin()
	p.mu.Unlock()
	select {
	case <-event.done:
		return nil
	case <-ctx.Done():
	}
	if p.withdraw(event) {
		return failure(ctx, ctx.Err())
	}
	more := grace
	if failure(ctx, ctx.Err()) == errSilent {
		more = 0
	}
	select {
	case <-event.done:
		return nil
	case <-time.After(more):
		return errUnsure // not the context's error: it may have happened
	}
}

// withdraw removes a waiting event, unless it is in a batch already.
func (p *publisher) withdraw(event *publication) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, event)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

// alone stores an event, unless it has to wait long for a lock.
func (p *publisher) alone(ctx context.Context, event *publication) (deliveries int, err error) {
	err = p.store.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		deliveries, _, err = p.store.enqueue(ctx, told{conn, lookUpSoon}, event.EncodedEvent, "")
		return err
	})
	return deliveries, err
}

// inTurn stores an event alone, as one of few.
func (p *publisher) inTurn(ctx context.Context, few chan struct{}, event *publication) (deliveries int, err error) {
	select {
	case few <- struct{}{}:
		defer func() { <-few }()
		return p.alone(ctx, event)
	case <-ctx.Done():
		return 0, failure(ctx, ctx.Err())
	}
}

// enter makes the caller a sender if there is none.
func (p *publisher) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.senders > 0 {
		return false
	}
	p.senders++
	return true
}

// leave ends a sender.
func (p *publisher) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.senders--
	p.begin()
}

// begin starts a sender, with the lock, if events wait and none is about to take them.
func (p *publisher) begin() {
	if len(p.waiting) > 0 && !p.gathering && p.senders < maxSenders {
		p.senders++
		p.gathering = true
		go p.send()
	}
}

// send stores one batch of the events that wait once it has a connection.
func (p *publisher) send() {
	p.gather()
	var events []*publication
	take := sync.OnceFunc(func() { events = p.take() })
	err := p.store.write(context.Background(), func(ctx context.Context, conn *pgxpool.Conn) error {
		take()
		return p.store.enqueueBatch(ctx, conn, events)
	})
	take() // if there was no connection
	for _, event := range events {
		event.err = err
		close(event.done)
	}
	p.leave()
}

// gather waits until no more events arrive.
func (p *publisher) gather() {
	for before, n := -1, 0; n > before; {
		before = n
		runtime.Gosched()
		p.mu.Lock()
		n = len(p.waiting)
		p.mu.Unlock()
	}
}

// take returns the waiting events, or as many as are for a batch.
func (p *publisher) take() []*publication {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := 0, 0
	for n < len(p.waiting) && n < maxBatch && bytes < maxBatchBytes {
		bytes += len(p.waiting[n].Body)
		n++
	}
	events := slices.Clone(p.waiting[:n])
	p.waiting = slices.Delete(p.waiting, 0, n)
	p.gathering = false
	p.begin()
	return events
}

// enqueueBatch stores events in a fixed order, so that batches do not deadlock, and only the
// first of those with the same account and id. Known events remain to be stored alone.
func (s *Store) enqueueBatch(ctx context.Context, conn *pgxpool.Conn, events []*publication) error {
	switch len(events) {
	case 0:
		return nil
	case 1:
		event := events[0]
		deliveries, _, err := s.enqueue(ctx, told{conn, lookUpSoon}, event.EncodedEvent, "")
		event.stored, event.deliveries = err == nil, deliveries
		return err
	}
	order := func(x, y *publication) int {
		return cmp.Or(cmp.Compare(x.Account, y.Account), cmp.Compare(x.ID, y.ID))
	}
	slices.SortStableFunc(events, order)
	distinct := slices.CompactFunc(slices.Clone(events), func(x, y *publication) bool { return order(x, y) == 0 })
	var added []addedEvent
	batch := &pgx.Batch{}
	batch.Queue(inBatch)
	batch.Queue(s.sql(enqueueMany), eventColumns(distinct, s.clock.latest())...).Query(func(rows pgx.Rows) (err error) {
		added, err = pgx.CollectRows(rows, pgx.RowToStructByPos[addedEvent])
		return err
	})
	err := conn.SendBatch(ctx, batch).Close()
	if err == nil {
		for _, of := range added {
			distinct[of.Place].stored, distinct[of.Place].deliveries = true, of.Deliveries
		}
	}
	return err
}
