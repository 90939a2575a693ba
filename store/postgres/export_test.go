package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
func ClaimedEvents(option Option) string { return optionsOf([]Option{option}).names.in(claimedEvents) }

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
func (s *Store) Owning(q Queues, lasts, idle time.Duration) Owning {
	s.ownership.queues, s.ownership.lasts, s.ownership.idle = testQueues{q}, lasts, idle
	return Owning{&s.ownership}
}

func (o Owning) Join(ctx context.Context) error { return o.o.join(ctx) }
func (o Owning) Node() int64                    { return o.o.node() }
func (o Owning) Incarnation() int64             { return o.o.incarnation() }
func (o Owning) OwnerOf(shard int16) int64      { node, _ := o.o.ownerOf(shard); return node }
func (o Owning) Lost(node int64)                { o.o.lost(node) }

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

// Lasts sets how long the node lasts without a heartbeat, before it joins.
func (s *Store) Lasts(d time.Duration) { s.ownership.lasts = d }

// Idles sets how long the node keeps its shards without claims, before it joins.
func (s *Store) Idles(d time.Duration) { s.ownership.idle = d }

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

// Join has the node load its shards.
func (s *Store) Join(t interface {
	Context() context.Context
	Fatal(...any)
}) {
	if err := s.ownership.join(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// DueIn returns how many deliveries of loaded shards are due within that time.
func (s *Store) DueIn(d time.Duration) int {
	claimed, _ := s.owned.queue.Claim(time.Now().Add(d), webhooks.Claim{Limit: math.MaxInt32, Lease: time.Hour})
	for _, c := range claimed {
		s.owned.queue.Release(c.Token)
	}
	return len(claimed)
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

// InMemory returns how many deliveries of the webhook are in the queue.
func (s *Store) InMemory(webhookID string) int {
	return s.owned.queue.Backlog(time.Now(), webhookID).Pending
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
