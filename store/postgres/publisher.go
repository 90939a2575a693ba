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

// maxSenders is how many batches are under way at the same time: while one is synced
// to disk the next is stored.
const maxSenders = 2

const (
	maxAlone  = 2                     // connections, each, of those who are refused and of those who wait
	heldPause = 50 * time.Millisecond // before another try of what has to wait
)

// A publisher stores events in batches, each a statement and a commit: whoever comes
// while maxSenders are under way shares the next with all who have come by then.
// There is no goroutine to it while nobody publishes.
type publisher struct {
	store *Store
	group sync.WaitGroup
	ctx   context.Context // until the store is closed
	stop  context.CancelFunc

	mu        sync.Mutex
	waiting   []*publication
	senders   int
	gathering bool // a sender is about to take what waits

	refused chan struct{} // those who try for the first time what was not stored with others
	held    chan struct{} // those who try again what had to wait
}

func (p *publisher) start(s *Store) {
	p.store = s
	p.refused, p.held = make(chan struct{}, maxAlone), make(chan struct{}, maxAlone)
	p.ctx, p.stop = context.WithCancel(context.Background())
}

// close waits for the end of what nobody waits for any more.
func (p *publisher) close() {
	p.stop()
	p.group.Wait()
}

// publish stores an event: alone if nobody else publishes, or else with others. What
// cannot be stored with others, perhaps because of one of them, is stored alone then,
// and what has to wait for a transaction of the host's waits where it keeps nobody else.
func (p *publisher) publish(ctx context.Context, encoded *webhooks.EncodedEvent) (deliveries int, err error) {
	ctx, cancel := within(ctx, patience)
	defer cancel()
	var unknown error // of a batch that may have stored it nevertheless
	if p.enter() {
		deliveries, err = p.alone(ctx, encoded)
		p.leave()
	} else {
		event := &publication{EncodedEvent: encoded, done: make(chan struct{})}
		alone, failed := p.share(ctx, event)
		switch {
		case alone:
		case failed != nil:
			return 0, failed // perhaps without having waited for what came of it
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
		return 0, unknown // another try that failed does not tell what came of the first
	}
	return deliveries, err
}

// alone stores an event, unless it has to wait for long.
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

// enter makes the caller a sender, if there is none.
func (p *publisher) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.senders > 0 {
		return false
	}
	p.senders++
	return true
}

// leave has a sender take over, if somebody waits.
func (p *publisher) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 || p.gathering {
		p.senders--
		return
	}
	p.gathering = true
	p.group.Go(p.send)
}

// share stores an event in a batch, or tells that it is to be stored alone. Once its
// batch is under way, the end of ctx changes nothing any more: the answer tells what
// happened.
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
			event.batch.leave()
			return false, errSilent // not the context's error: it may have happened
		}
	}
	// What a batch that failed may have stored nevertheless, ctx does not tell of.
	return event.alone && (event.err == nil || ctx.Err() == nil), event.err
}

// withdraw takes back an event, unless it is in a batch already.
func (p *publisher) withdraw(event *publication) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, event)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

// send stores what waits, as long as something does. It begins as the sender that
// gathers.
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

// wanted reports whether somebody waits, once nobody more is about to come. If not,
// the sender has ended.
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

// gather makes a sender the one that gathers. If another is, the sender has ended.
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

// take makes a batch of what waits.
func (p *publisher) take() *publicationBatch {
	b := &publicationBatch{}
	b.ctx, b.cancel = context.WithTimeout(context.Background(), patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gathering = false
	n, bytes := 0, 0
	for n < len(p.waiting) && n < maxTogether && bytes < maxBytesTogether {
		p.waiting[n].batch = b
		bytes += len(p.waiting[n].Body)
		n++
	}
	b.events = slices.Clone(p.waiting[:n])
	p.waiting = slices.Delete(p.waiting, 0, n)
	b.present.Store(int32(n))
	return b
}
