package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/storetest"
	"github.com/storageapi/storageapi/webhooks"
)

// Publishing tells how many send events, and how many events wait to be sent.
func (s *Store) Publishing() (senders, waiting int) {
	s.publisher.mu.Lock()
	defer s.publisher.mu.Unlock()
	return s.publisher.senders, len(s.publisher.waiting)
}

// Pool returns the connections.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// CheckClockAlways has each claim look at the database's clock.
func (s *Store) CheckClockAlways() { s.clock.every = 0 }

// AskEvery has who listens ask so often whether it is still connected.
func (s *Store) AskEvery(d time.Duration) { s.waker.ask = d }

// ShardOf returns the shard of an account.
func ShardOf(account string) int16 { return shardOf(account) }

// Indexed are the settings of lists.
const (
	Indexed = indexed
	LookUp  = lookUp
	InOrder = inOrder
)

// ClaimedEvents returns the statement that claims read events by.
func ClaimedEvents(option Option) string { return optionsOf([]Option{option}).names.in(loadedEvents) }

// Migrating makes a node one that knows a further migration.
func Migrating(text string) Option {
	return func(o *options) {
		m := migration{len(o.migrations) + 1, text, sha256.Sum256([]byte(text))}
		o.migrations = append(slices.Clip(o.migrations), m)
	}
}

// ListFailed returns the statement that lists failed deliveries.
func ListFailed(options ...Option) string { return optionsOf(options).names.in(listFailed) }

// SchemaOf returns the name that InSchema was given.
func SchemaOf(option Option) string { return optionsOf([]Option{option}).schema }

// Queues are what owning shards asks of the queues in memory. Functions that are nil do nothing.
type Queues struct {
	Load     func(ctx context.Context, shards []int16) error
	Pause    func(shards []int16)
	UnderWay func(shard int16) int
	Unload   func(shards []int16)
	Polls    func(nodes int) bool
}

type testQueues struct{ Queues }

func (q testQueues) loadShards(ctx context.Context, shards []int16) error { return q.Load(ctx, shards) }
func (q testQueues) pauseShards(shards []int16)                           { q.Pause(shards) }
func (q testQueues) unloadShards(shards []int16)                          { q.Unload(shards) }

func (q testQueues) polls(nodes int) bool { return q.Polls != nil && q.Polls(nodes) }

func (q testQueues) underWay() map[int16]int {
	busy := make(map[int16]int)
	for shard := range int16(shards) {
		busy[shard] = q.UnderWay(shard)
	}
	return busy
}

// Owning lets a test own shards with queues of its own.
type Owning struct{ o *ownership }

// Owning has the store own shards for these queues, with other times.
func (s *Store) Owning(q Queues, lasts time.Duration) Owning {
	s.ownership.queues, s.ownership.lasts = testQueues{q}, lasts
	return Owning{&s.ownership}
}

// Join has the node own shards, until Leave. It returns nil once it has loaded its share, as long as
// its time lasts, or the error of taking it.
func (o Owning) Join(ctx context.Context) error {
	o.o.mu.Lock()
	if !o.o.running && o.o.ctx.Err() == nil {
		o.o.running = true
		o.o.store.owned.begin(nil)
		o.o.group.Go(func() { o.o.deliver(o.o.ctx) })
	}
	o.o.mu.Unlock()
	return o.o.store.joined(ctx)
}

// joined returns once the node has begun to load its share, or with the error of taking it.
func (s *Store) joined(ctx context.Context) error {
	for {
		switch {
		case s.ownership.ctx.Err() != nil:
			return store.ErrClosed
		case ctx.Err() != nil:
			return ctx.Err()
		}
		s.owned.mu.Lock()
		joined, err := s.owned.joined, cmp.Or(s.owned.troubles[:]...)
		s.owned.mu.Unlock()
		if err != nil || joined && s.ownership.node() != 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
func (o Owning) Node() int64               { return o.o.node() }
func (o Owning) Incarnation() int64        { return o.o.incarnation() }
func (o Owning) OwnerOf(shard int16) int64 { node, _ := o.o.ownerOf(shard); return node }
func (o Owning) Lost(node int64)           { o.o.lost(node) }

// Kill ends the node as if its process had ended.
func (o Owning) Kill() {
	o.o.stop()
	o.o.group.Wait()
	o.o.newest = &incarnation{over: true}
}

// Settling is what settlements lock.
func (o Owning) Settling() *sync.RWMutex { return &o.o.fence }

// Runs reports whether there are goroutines.
func (o Owning) Runs() bool {
	o.o.mu.Lock()
	defer o.o.mu.Unlock()
	return o.o.running
}

// Listen listens until ctx is done. It calls wake when it begins to, and with each notification.
func (s *Store) Listen(ctx context.Context, wake func()) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ownership.ctx, cancel)()
	group.Go(func() { s.listens(ctx) })
	for {
		select {
		case <-s.owned.look.woken:
			wake()
		case <-ctx.Done():
			return
		}
	}
}

// Listening reports whether the node listens.
func (s *Store) Listening() bool {
	f := &s.owned.look.frequency
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listens > 0
}

// Lasts sets how long the node lasts without a heartbeat, before it delivers.
func (s *Store) Lasts(d time.Duration) { s.ownership.lasts = d }

// LooksEvery returns about how often the node looks.
func (s *Store) LooksEvery(ctx context.Context) (time.Duration, error) {
	if err := s.owned.hold(ctx); err != nil {
		return 0, err
	}
	defer s.owned.let()
	return s.owned.look.frequency.every(s.options.poll), nil
}

// Kill ends the ownership of shards as if the process had ended.
func (s *Store) Kill() { Owning{&s.ownership}.Kill() }

// CheckParts has the next publication look whether parts run out.
func (s *Store) CheckParts() { s.sparePartsAt.Store(0) }

// ChangeIDs makes a part of event_ids that begins after that time.
func (s *Store) ChangeIDs(ctx context.Context, after time.Duration) error {
	return s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		t := &parted[slices.IndexFunc(parted, func(t partedTable) bool { return t.name == eventIDs })]
		var now, last int64
		var name string
		if err := tx.QueryRow(ctx, s.sql(lastPart), t.name, s.clock.latest()).Scan(&now, &last, &name); err != nil {
			return err
		}
		from := now + numbers(after)
		next := fmt.Sprint(t.name, "_", from)
		batch := &pgx.Batch{}
		batch.Queue(s.sql(lengthenPart), t.name, name, from)
		batch.Queue(s.sql(makePart(t, next)))
		batch.Queue(s.sql(attachPart(t, next, from, from)))
		batch.Queue(s.sql(notePart), t.name, from, int64(math.MaxInt64), next)
		return tx.SendBatch(ctx, batch).Close()
	})
}

// A Frequency is how often a node looks.
type Frequency struct{ f frequency }

func NewFrequency() *Frequency { return &Frequency{frequency{wakes: pollFromWakes}} }

// PollFrom sets how many backends notifications must wake in a second for the node to poll.
func (s *Store) PollFrom(wakes float64) { s.owned.look.frequency.wakes = wakes }

func (f *Frequency) Every(poll time.Duration) time.Duration { return f.f.every(poll) }
func (f *Frequency) Listen(more int)                        { f.f.listen(more) }
func (f *Frequency) HostPublishes()                         { f.f.hostPublishes() }
func (f *Frequency) Own(n int) {
	for range n {
		f.f.changed()
	}
}
func (f *Frequency) Polls(nodes int) bool { return f.f.polls(nodes) }

// Looked notes a look that found nothing, and these transactions.
func (f *Frequency) Looked(oldest, next int64) {
	f.f.looked(time.Now(), nil, &horizon{min: oldest, max: next})
}

// Found notes a look that found n transactions, numbered from first, with two deliveries each.
func (f *Frequency) Found(first int64, n int) {
	var list []changeRow
	for i := range int64(2 * n) {
		list = append(list, changeRow{added: first + i/2})
	}
	f.f.looked(time.Now(), list, &horizon{})
}

// Join has the node deliver to nobody until it is closed, and returns once it has reported what is
// pending. dueIn returns how many of the deliveries that were reported are due within a time.
func (s *Store) Join(t interface {
	Context() context.Context
	Fatal(...any)
}) (dueIn func(time.Duration) int) {
	recorder := new(storetest.Recorder)
	go func() { _ = s.Deliver(context.Background(), recorder) }()
	err := recorder.Wait(t.Context(), func(reports []storetest.Report) bool {
		return slices.ContainsFunc(reports, func(r storetest.Report) bool { return r.Method == "Trouble" && r.Err == nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(d time.Duration) (n int) {
		due := make(map[webhooks.DeliveryRef]time.Time)
		for _, r := range recorder.Reports() {
			if r.Method == "Add" {
				due[r.Ref] = r.Pending.Due
			}
		}
		for _, at := range due {
			if time.Until(at) <= d {
				n++
			}
		}
		return n
	}
}

// Doubts returns what is doubted of a clock that was seen first to show 0, after each further observation.
func Doubts(observations ...time.Duration) (doubts []time.Duration) {
	zero := time.Now().Round(0)
	c := confirmedClock{seen: zero}
	for _, at := range observations {
		c.observe(zero.Add(at))
		doubts = append(doubts, c.doubt())
	}
	return doubts
}

// Loading returns how many shards are loading.
func (s *Store) Loading() int {
	s.owned.mu.Lock()
	defer s.owned.mu.Unlock()
	return len(s.owned.loads.of)
}

// A Counter is a store that counts the deliveries that it reports.
type Counter struct {
	*Store
	mu sync.Mutex
	of map[string]map[uint64]int
}

// Count counts what is reported to a scheduler of the counter.
func (s *Store) Count() *Counter { return &Counter{Store: s, of: make(map[string]map[uint64]int)} }

// Deliver implements [webhooks.Deliveries].
func (c *Counter) Deliver(ctx context.Context, to webhooks.Scheduler) error {
	return c.Store.Deliver(ctx, countedScheduler{to, c})
}

type countedScheduler struct {
	webhooks.Scheduler
	counter *Counter
}

func (s countedScheduler) Add(list []webhooks.PendingDelivery) {
	c := s.counter
	c.mu.Lock()
	for i := range list {
		id := list[i].Webhook.ID
		if c.of[id] == nil {
			c.of[id] = make(map[uint64]int)
		}
		c.of[id][list[i].Number]++
	}
	c.mu.Unlock()
	s.Scheduler.Add(list)
}

// Reported returns how many deliveries of the webhook were reported, and how often.
func (c *Counter) Reported(webhookID string) (deliveries, reports int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.of[webhookID] {
		deliveries, reports = deliveries+1, reports+n
	}
	return deliveries, reports
}

// Failing returns how many shards cannot be read.
func (s *Store) Failing() (n int) {
	s.owned.mu.Lock()
	defer s.owned.mu.Unlock()
	for _, load := range s.owned.loads.of {
		if load.failing {
			n++
		}
	}
	return n
}

// Shards returns how many shards the store has in memory.
func (s *Store) Shards() int {
	shards, _ := s.owned.served()
	return len(shards)
}
