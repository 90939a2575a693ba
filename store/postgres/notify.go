package postgres

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/postgres/internal/feed"
	"github.com/storageapi/storageapi/store/postgres/internal/pause"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

const (
	notifyPause = 3 * time.Millisecond // minimum time between two statements of notifications
	relistenMin = 100 * time.Millisecond
	relistenMax = 10 * time.Second
	askEvery    = 20 * time.Second // between checks of the connection that listens
)

// A notifier notifies other nodes of changes in their shards. A lost notification only causes a
// delay, since nodes also poll the change feed. NOTIFY takes a server-wide lock, so several events
// share one notification, and the host's transactions send none.
type notifier struct {
	store *Store
	ask   time.Duration  // askEvery
	group sync.WaitGroup // the goroutines that listen

	mu        sync.Mutex
	sending   bool      // send will be called soon
	last      time.Time // when send was last called
	waiting   map[notification]bool
	announced time.Time // when this node last announced that a host publishes in transactions
}

type notification struct{ channel, payload string }

// hostPublishes is the payload that announces that a host publishes in transactions, whose commits
// send no notification.
const hostPublishes = "transactions"

func (w *notifier) start(s *Store) {
	w.store, w.ask, w.waiting = s, askEvery, make(map[notification]bool)
}

// channel returns the channel to which all nodes of this schema listen, for notifications such as
// released shards.
func (s *Store) channel() string { return "storageapi_" + s.options.schema }

// channelOf returns the notification channel of one node.
func channelOf(base int64) string { return "storageapi_" + strconv.FormatInt(base, 36) }

// notify queues a notification, which is sent within notifyPause.
func (w *notifier) notify(n notification) {
	if w.store.options.quiet {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[n] = true
	if !w.sending {
		w.sending = true
		time.AfterFunc(notifyPause-time.Since(w.last), w.send)
	}
}

// announceHost announces to all nodes that a host publishes in transactions, at most once a second.
func (w *notifier) announceHost() {
	w.mu.Lock()
	due := time.Since(w.announced) >= feed.AnnounceInterval
	if due {
		w.announced = time.Now()
	}
	w.mu.Unlock()
	if due {
		w.notify(notification{w.store.channel(), hostPublishes})
	}
}

func (w *notifier) send() {
	w.mu.Lock()
	var channels, payloads []string
	for n := range w.waiting {
		channels, payloads = append(channels, n.channel), append(payloads, n.payload)
	}
	clear(w.waiting)
	w.sending, w.last = false, time.Now()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), minTimeout)
	defer cancel()
	if err := w.store.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, notifiesAll, channels, payloads)
		return err
	}); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.announced = time.Time{}
	}
}

// changed notifies the owners of the accounts' shards, which then read the change feed. Call it
// after the commit.
func (s *Store) changed(accounts ...string) {
	for _, account := range accounts {
		shard := shardOf(account)
		if s.owns(shard) {
			s.owned.want()
		} else if s.options.quiet {
			continue
		} else if node, busy := s.node.OwnerOf(shard); node == 0 {
			s.notifier.notify(notification{channel: s.channel()})
		} else if !busy {
			s.notifier.notify(notification{channel: channelOf(shards.BaseOf(node))})
		}
	}
}

// listens makes the node read the change feed after each notification, until ctx ends. It occupies
// one of the pool's connections. With a pool of one connection it does not listen: the node finds
// other nodes' changes by polling, see [PollEvery].
func (s *Store) listens(ctx context.Context) {
	polls := &s.owned.reader.polls
	started := func() (ended func()) {
		s.node.Beat()
		polls.AddListener(1)
		polls.HostPublishes() // an announcement or a change may have been missed
		s.owned.want()
		return func() { polls.AddListener(-1) }
	}
	s.keepListening(ctx, 2, []string{channelOf(s.node.Base()), s.channel()}, started, func(payload string) {
		switch payload {
		case ownersChanged:
			s.node.Beat()
		case hostPublishes:
			polls.HostPublishes()
			s.owned.reader.wake()
		default:
			s.owned.want()
		}
	})
}

// keepListening listens on channels until ctx ends, on a separate connection. It does not listen if
// the pool has fewer than conns connections.
func (s *Store) keepListening(ctx context.Context, conns int32, channels []string, started func() (ended func()), heard func(payload string)) {
	if s.options.quiet || s.pool.Stat().MaxConns() < conns {
		return
	}
	for delay := relistenMin; ctx.Err() == nil; delay = min(2*delay, relistenMax) {
		if s.listen(ctx, channels, started, heard) {
			delay = relistenMin
		}
		pause.Sleep(ctx, nil, delay)
	}
}

// listen listens until the connection fails, and reports whether it listened.
func (s *Store) listen(ctx context.Context, channels []string, started func() (ended func()), heard func(payload string)) (listened bool) {
	if s.begin(ctx) != nil {
		return false
	}
	s.notifier.group.Add(1)
	defer s.notifier.group.Done()
	s.steps.RUnlock()
	short, cancel := within(ctx, defaultTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(short)
	if err != nil {
		return false
	}
	defer conn.Release()
	own := conn.Conn()
	defer func() { // a listening connection must not return to the pool
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), minTimeout)
		defer cancel()
		_ = own.Close(closing)
	}()
	for _, channel := range channels {
		if _, err := own.Exec(short, listenOn(channel)); err != nil {
			return false
		}
	}
	defer started()()
	for {
		n, err := hear(ctx, own, s.notifier.ask)
		if err != nil {
			return true
		}
		if n != nil {
			heard(n.Payload)
		}
	}
}

// hear waits for a notification. If none arrives within ask, it checks the connection.
func hear(ctx context.Context, conn *pgx.Conn, ask time.Duration) (*pgconn.Notification, error) {
	waiting, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	heard, err := conn.WaitForNotification(waiting)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return heard, err
	}
	asking, cancel := context.WithTimeout(ctx, minTimeout)
	defer cancel()
	return nil, conn.Ping(asking)
}
