package postgres

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// maxSenders is how many batches are stored at the same time: while one is synced to disk
// the next is stored.
const maxSenders = 2

const (
	maxAlone  = 2                     // connections for events that were refused, and as many for those that wait for locks
	heldPause = 50 * time.Millisecond // before a retry of what waits for a lock
)

// A publisher stores events in batches (group commit), each in one statement and one
// commit. Calls that arrive while maxSenders batches are being stored share the next one.
// The publisher has no goroutine while there are no calls.
type publisher struct {
	store *Store
	group sync.WaitGroup
	ctx   context.Context // until the store is closed
	stop  context.CancelFunc

	mu        sync.Mutex
	waiting   []*publication
	senders   int
	gathering bool // a sender is about to take the waiting events

	refused chan struct{} // first tries alone of events that a batch did not store
	held    chan struct{} // retries of events that wait for locks
}

func (p *publisher) start(s *Store) {
	p.store = s
	p.refused, p.held = make(chan struct{}, maxAlone), make(chan struct{}, maxAlone)
	p.ctx, p.stop = context.WithCancel(context.Background())
}

// close waits for abandoned batches.
func (p *publisher) close() {
	p.stop()
	p.group.Wait()
}

// publish stores an event: alone if there are no other calls, or else in a batch. An event
// that its batch could not store, perhaps because of another event, is stored alone. An
// event that has to wait for a transaction of the host waits without delaying others.
func (p *publisher) publish(ctx context.Context, encoded *webhooks.EncodedEvent) (deliveries int, err error) {
	ctx, cancel := within(ctx, patience)
	defer cancel()
	var unknown error // of a batch that may have stored the event nevertheless
	if p.enter() {
		deliveries, err = p.alone(ctx, encoded)
		p.handOver()
	} else {
		event := &publication{EncodedEvent: encoded, done: make(chan struct{})}
		alone, failed := p.share(ctx, event)
		switch {
		case alone:
		case failed != nil:
			return 0, failed // perhaps before the result was known
		default:
			return event.deliveries, nil
		}
		if event.err != nil && code(event.err) == "" {
			unknown = event.err
		}
		deliveries, err = p.inTurn(ctx, p.refused, encoded)
	}
	for code(err) == lockNotAvailable {
		select {
		case <-time.After(heldPause):
			deliveries, err = p.inTurn(ctx, p.held, encoded)
		case <-ctx.Done():
			err = failure(ctx, ctx.Err())
		}
	}
	if err != nil && unknown != nil {
		return 0, unknown // the result of the first try is still unknown
	}
	return deliveries, err
}

// alone stores an event, unless it has to wait long for a lock.
func (p *publisher) alone(ctx context.Context, encoded *webhooks.EncodedEvent) (deliveries int, err error) {
	err = p.store.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		deliveries, _, err = p.store.enqueue(ctx, hurried(conn), encoded, "")
		return err
	})
	return deliveries, err
}

// inTurn stores an event alone, as one of few.
func (p *publisher) inTurn(ctx context.Context, few chan struct{}, encoded *webhooks.EncodedEvent) (deliveries int, err error) {
	select {
	case few <- struct{}{}:
		defer func() { <-few }()
		return p.alone(ctx, encoded)
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

// handOver ends the caller's turn as a sender, and starts a sender if events wait.
func (p *publisher) handOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 || p.gathering {
		p.senders--
		return
	}
	p.gathering = true
	p.group.Go(p.send)
}

// share stores an event in a batch, or reports that it must be stored alone. Once its
// batch is being stored, a cancelled ctx has no effect: the result says what happened.
func (p *publisher) share(ctx context.Context, event *publication) (alone bool, err error) {
	if err := p.store.begin(ctx); err != nil {
		return false, err
	}
	defer p.store.steps.RUnlock()
	p.mu.Lock()
	p.waiting = append(p.waiting, event)
	if !p.gathering && p.senders < maxSenders {
		p.senders++
		p.gathering = true
		p.group.Go(p.send)
	}
	p.mu.Unlock()
	select {
	case <-event.done:
	case <-ctx.Done():
		if p.withdraw(event) {
			return false, failure(ctx, ctx.Err())
		}
		more := grace
		if failure(ctx, ctx.Err()) == errSilent {
			more = 0
		}
		select {
		case <-event.done:
		case <-time.After(more):
			event.batch.abandon()
			return false, errSilent // not the context's error: it may have happened
		}
	}
	// The context's error must not hide that a failed batch may have stored the event.
	return event.alone && (event.err == nil || ctx.Err() == nil), event.err
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

// send stores batches for as long as events wait. It starts as the gathering sender.
func (p *publisher) send() {
	for gathers := true; gathers && p.wanted(); gathers = p.gather() {
		acquiring, cancel := within(p.ctx, patience)
		conn, err := p.store.pool.Acquire(acquiring)
		err = failure(acquiring, err)
		cancel()
		b := p.take()
		if err == nil {
			if len(b.events) > 0 {
				err = b.store(p.store, conn)
			}
			conn.Release()
		}
		if err != nil && b.ctx.Err() != nil {
			err = errSilent // not the context's error: it may have happened
		}
		b.tell(err)
	}
}

// wanted waits until no more events arrive and reports whether any wait. If none do, the
// sender has ended.
func (p *publisher) wanted() bool {
	for before := 0; ; {
		runtime.Gosched()
		p.mu.Lock()
		n := len(p.waiting)
		if n == 0 {
			p.senders--
			p.gathering = false
		}
		p.mu.Unlock()
		if n <= before {
			return n > 0
		}
		before = n
	}
}

// gather makes the sender the gathering one. If there is another, the sender has ended.
func (p *publisher) gather() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gathering {
		p.senders--
		return false
	}
	p.gathering = true
	return true
}

// take makes a batch of the waiting events.
func (p *publisher) take() *publicationBatch {
	b := &publicationBatch{}
	b.ctx, b.cancel = context.WithTimeout(context.Background(), patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gathering = false
	n, bytes := 0, 0
	for n < len(p.waiting) && n < maxBatch && bytes < maxBatchBytes {
		p.waiting[n].batch = b
		bytes += len(p.waiting[n].Body)
		n++
	}
	b.events = slices.Clone(p.waiting[:n])
	p.waiting = slices.Delete(p.waiting, 0, n)
	b.present.Store(int32(n))
	return b
}
