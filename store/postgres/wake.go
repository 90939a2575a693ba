package postgres

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	hintPause   = 3 * time.Millisecond // at least, between two statements of hints
	relistenMin = 100 * time.Millisecond
	relistenMax = 10 * time.Second
	askEvery    = 20 * time.Second // between checks of the connection that listens
)

// A waker tells other nodes that something of theirs has changed. These are hints only: what a
// node is not told of it finds by looking. A notification takes a lock of the whole server, so
// there is not one for each event, and none in the host's transactions.
type waker struct {
	store *Store
	ask   time.Duration  // askEvery
	group sync.WaitGroup // the goroutines that listen

	mu      sync.Mutex
	hinting bool          // hint will be called soon
	last    time.Time     // it was
	hints   map[hint]bool // to send
	told    time.Time     // when others were told last that hosts publish in transactions
}

// A hint is a notification: there is something to look for.
type hint struct{ channel, payload string }

// hostPublishes is the payload of the hint that a host publishes in transactions: no hint tells when these
// are committed. Older nodes, which do not know it, look at once.
const hostPublishes = "transactions"

func (w *waker) start(s *Store) {
	w.store, w.ask, w.hints = s, askEvery, make(map[hint]bool)
}

// channel is the channel of all nodes on this schema, with what concerns all: shards that were left.
func (s *Store) channel() string { return "storageapi_" + s.options.schema }

// channelOf is the channel of one node, for hints.
func channelOf(node int64) string { return "storageapi_" + strconv.FormatInt(node>>baseShift, 36) }

// notify sends a hint soon.
func (w *waker) notify(h hint) {
	if w.store.options.quiet {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hints[h] = true
	if !w.hinting {
		w.hinting = true
		time.AfterFunc(hintPause-time.Since(w.last), w.hint)
	}
}

// tellPublishing tells all nodes that a host publishes in transactions, unless they were told lately.
func (w *waker) tellPublishing() {
	w.mu.Lock()
	lately := time.Since(w.told) < tellEvery
	if !lately {
		w.told = time.Now()
	}
	w.mu.Unlock()
	if !lately {
		w.notify(hint{w.store.channel(), hostPublishes})
	}
}

func (w *waker) hint() {
	w.mu.Lock()
	var channels, payloads []string
	for h := range w.hints {
		channels, payloads = append(channels, h.channel), append(payloads, h.payload)
	}
	clear(w.hints)
	w.hinting, w.last = false, time.Now()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := w.store.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, notifiesAll, channels, payloads)
		return err
	}); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = time.Time{}
	}
}

// changed is called once changes of the accounts are committed: the owners of their shards read
// them soon.
func (s *Store) changed(accounts ...string) {
	for _, account := range accounts {
		shard := shardOf(account)
		if s.owns(shard) {
			s.owned.look.frequency.changed()
			s.owned.want()
		} else if s.options.quiet {
			continue
		} else if node, polls := s.ownership.ownerOf(shard); node == 0 {
			s.waker.notify(hint{channel: s.channel()})
		} else if !polls {
			s.waker.notify(hint{channel: channelOf(node)})
		}
	}
}

// listens listens until ctx is done. It keeps one of the pool's connections in use, unless the pool
// has only one: then what other nodes enqueue is found by looking every [PollEvery].
func (s *Store) listens(ctx context.Context) {
	if s.options.quiet || s.pool.Stat().MaxConns() < 2 {
		return
	}
	for pause := relistenMin; ctx.Err() == nil; pause = min(2*pause, relistenMax) {
		if s.listen(ctx) {
			pause = relistenMin
		}
		sleep(ctx, nil, pause)
	}
}

// listen has the node look after each notification, and reports whether it listened at all.
func (s *Store) listen(ctx context.Context) (listened bool) {
	if s.begin(ctx) != nil {
		return false
	}
	s.waker.group.Add(1)
	defer s.waker.group.Done()
	s.steps.RUnlock()
	short, cancel := within(ctx, patience)
	defer cancel()
	conn, err := s.pool.Acquire(short)
	if err != nil {
		return false
	}
	defer conn.Release()
	own := conn.Conn()
	defer func() { // it listens, so it must not return to the pool
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_ = own.Close(closing)
	}()
	hints := channelOf(s.ownership.base << baseShift)
	for _, channel := range []string{hints, s.channel()} {
		if _, err := own.Exec(short, listensOn(channel)); err != nil {
			return false
		}
	}
	s.ownership.hear()
	frequency := &s.owned.look.frequency
	frequency.listen(1)
	defer frequency.listen(-1)
	frequency.hostPublishes() // it may have been told before, as what is wanted
	s.owned.want()
	for {
		heard, err := hear(ctx, own, s.waker.ask)
		if err != nil {
			return true
		}
		switch {
		case heard == nil:
		case heard.Payload == ownersChanged:
			s.ownership.hear()
		case heard.Payload == hostPublishes:
			frequency.hostPublishes()
			s.owned.look.wake()
		default:
			s.owned.want()
		}
	}
}

// hear waits for a notification. After a while without one it checks the connection.
func hear(ctx context.Context, conn *pgx.Conn, ask time.Duration) (*pgconn.Notification, error) {
	waiting, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	heard, err := conn.WaitForNotification(waiting)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return heard, err
	}
	asking, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return nil, conn.Ping(asking)
}
