package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres/internal/batch"
	"github.com/storageapi/storageapi/store/postgres/internal/pause"
)

const (
	maxSenders    = 2       // concurrent batches: while one is synced to disk, the next is stored
	maxBatch      = 256     // events in a batch
	maxBatchBytes = 1 << 20 // body bytes in a batch, without the last event
	smallBatch    = 16      // events in a batch, after a larger one failed
	maxAlone      = 3       // connections for events that no batch stored

	heldPause    = 50 * time.Millisecond // first pause while an event waits for a lock; doubles
	heldPauseMax = time.Second
)

// A publisher stores events in batches, each in one statement and one commit.
//
// A batch may fail because of one event, for example if an open transaction of the host has
// published the event's id. So the events of a failed batch are stored again in smaller batches,
// and the events of a failed smaller batch are stored one by one.
type publisher struct {
	store   *Store
	group   *batch.Group[*publication]
	retries *batch.Group[*publication] // smaller batches of events whose batch failed
	alone   chan struct{}              // semaphore for storing events one by one, see maxAlone
}

// A publication is an event that is published in a batch.
type publication struct {
	*driver.EncodedEvent

	// The result, once done is closed.
	stored     bool // false: publish must store the event alone
	deliveries int
	err        error // the error of a batch that had the event
	done       chan struct{}
}

func (p *publisher) start(s *Store) {
	p.store, p.alone = s, make(chan struct{}, maxAlone)
	config := batch.Config[*publication]{
		Senders: maxSenders, Values: maxBatch, Bytes: maxBatchBytes,
		Size: func(event *publication) int { return len(event.Body) },
		Send: p.send,
	}
	p.group = batch.New(config)
	config.Values, config.Send = smallBatch, p.resend
	p.retries = batch.New(config)
}

// publish stores an event: in the caller's goroutine if no other call is running, otherwise in a
// batch. An event that its batches did not store is stored alone. While an event waits for a
// transaction of the host, it is retried, and other events are stored meanwhile.
func (p *publisher) publish(ctx context.Context, encoded *driver.EncodedEvent) (deliveries int, err error) {
	ctx, cancel := within(ctx, defaultTimeout)
	defer cancel()
	event := &publication{EncodedEvent: encoded, done: make(chan struct{})}
	if p.group.Enter() {
		deliveries, err = p.storeAlone(ctx, event)
		p.group.Leave()
	} else {
		if err := p.share(ctx, event); err != nil {
			return 0, err // the result may be unknown
		}
		if event.stored {
			return event.deliveries, nil
		}
		deliveries, err = p.inTurn(ctx, event)
	}
	for delay := heldPause; code(err) == lockNotAvailable; delay = min(2*delay, heldPauseMax) {
		if pause.Sleep(ctx, nil, delay) {
			deliveries, err = p.inTurn(ctx, event)
		} else {
			err = failure(ctx, ctx.Err())
		}
	}
	return deliveries, event.failure(err)
}

// failure returns err or, if a batch may have stored the event, the error of that batch, so that no
// later error hides it.
func (e *publication) failure(err error) error {
	if err != nil && errors.Is(e.err, auth.ErrInterrupted) {
		return e.err
	}
	return err
}

// share stores an event in batches. Cancelling ctx has no effect while a batch is being stored: the
// result decides.
func (p *publisher) share(ctx context.Context, event *publication) error {
	if err := ctx.Err(); err != nil {
		return failure(ctx, err)
	}
	p.group.Add(event)
	select {
	case <-event.done:
		return nil
	case <-ctx.Done():
	}
	if p.group.Withdraw(event) || p.retries.Withdraw(event) {
		return event.failure(failure(ctx, ctx.Err()))
	}
	more := minTimeout
	if failure(ctx, ctx.Err()) == errSilent {
		more = 0
	}
	select {
	case <-event.done:
		return nil
	case <-time.After(more):
		return errUnsure // not the context's error, because the event may be stored
	}
}

// inTurn stores an event alone; at most maxAlone run at the same time.
func (p *publisher) inTurn(ctx context.Context, event *publication) (deliveries int, err error) {
	select {
	case p.alone <- struct{}{}:
		defer func() { <-p.alone }()
		return p.storeAlone(ctx, event)
	case <-ctx.Done():
		return 0, failure(ctx, ctx.Err())
	}
}

// storeAlone stores an event, unless it would wait long for a lock.
func (p *publisher) storeAlone(ctx context.Context, event *publication) (deliveries int, err error) {
	err = p.store.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		deliveries, err = p.store.enqueueAlone(ctx, conn, event)
		return err
	})
	return deliveries, err
}

// send stores a batch, or adds its events to smaller batches if that fails.
func (p *publisher) send(take func() []*publication) {
	if events, err := p.storeBatch(take); err != nil && len(events) > smallBatch {
		p.retries.Add(events...)
	} else {
		p.finish(events, err)
	}
}

// resend stores a batch of events whose larger batch failed.
func (p *publisher) resend(take func() []*publication) { p.finish(p.storeBatch(take)) }

// storeBatch stores a batch. It takes the events after it has a connection.
func (p *publisher) storeBatch(take func() []*publication) (events []*publication, err error) {
	once := sync.OnceFunc(func() { events = take() })
	err = p.store.write(context.Background(), func(ctx context.Context, conn *pgxpool.Conn) error {
		once()
		return p.store.enqueueBatch(ctx, conn, events)
	})
	once() // take the events even if there was no connection
	if err != nil {
		for _, event := range events {
			event.err = event.failure(err)
		}
	}
	return events, err
}

// finish returns the results of a batch to the callers. If a successful batch did not store some
// events, their ids are probably known, and one more statement looks them all up.
func (p *publisher) finish(events []*publication, err error) {
	var rest []*publication
	for _, event := range events {
		if event.stored {
			close(event.done)
		} else {
			rest = append(rest, event)
		}
	}
	if err == nil && len(rest) > 0 {
		p.store.findKnown(rest)
	}
	for _, event := range rest {
		close(event.done)
	}
}

// findKnown sets the results of the events whose ids the store already knows. If the lookup fails,
// the callers store these events one by one.
func (s *Store) findKnown(events []*publication) {
	accounts := column(events, func(e *publication) string { return e.Account })
	ids := column(events, func(e *publication) string { return e.ID })
	known, err := collect(context.Background(), s, scanAdded, matchedOf, accounts, ids)
	if err == nil {
		setStored(events, known)
	}
}

// setStored sets the results of the events that are stored.
func setStored(events []*publication, stored []addedEvent) {
	for _, of := range stored {
		events[of.Place].stored, events[of.Place].deliveries = true, of.Deliveries
	}
}

func (s *Store) enqueueAlone(ctx context.Context, conn *pgxpool.Conn, event *publication) (deliveries int, err error) {
	deliveries, _, err = s.enqueue(ctx, s.with(conn, lookUp, lockBriefly), event.EncodedEvent, "")
	return deliveries, err
}

// enqueueBatch stores events in a fixed order, so that batches do not deadlock. For each account
// and id that is not known, it stores only the first event.
func (s *Store) enqueueBatch(ctx context.Context, conn *pgxpool.Conn, events []*publication) error {
	switch len(events) {
	case 0:
		return nil
	case 1:
		deliveries, err := s.enqueueAlone(ctx, conn, events[0])
		events[0].stored, events[0].deliveries = err == nil, deliveries
		return err
	}
	order := func(x, y *publication) int {
		return cmp.Or(cmp.Compare(x.Account, y.Account), cmp.Compare(x.ID, y.ID))
	}
	slices.SortStableFunc(events, order)
	distinct := slices.CompactFunc(slices.Clone(events), func(x, y *publication) bool { return order(x, y) == 0 })
	var added []addedEvent
	sending := s.batch(indexed, lockBriefly)
	sending.Queue(s.sql(enqueueMany), eventColumns(distinct, s.clock.latest())...).Query(func(rows pgx.Rows) (err error) {
		added, err = pgx.CollectRows(rows, pgx.RowToStructByPos[addedEvent])
		return err
	})
	err := conn.SendBatch(ctx, sending).Close()
	if err == nil {
		setStored(distinct, added)
	}
	return err
}
