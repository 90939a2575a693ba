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
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
	"github.com/storageapi/storageapi/store/storetest"
)

// Publishing returns the number of goroutines that are storing events, and the number of events
// that wait for a batch.
func (s *Store) Publishing() (senders, waiting int) { return s.publisher.group.State() }

// LookingUp returns the number of running statements that look up keys by hash, and the number of
// calls that wait for one.
func (s *Store) LookingUp() (statements, waiting int) { return s.lookups.State() }

// Pool returns the store's pool.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// CheckClockAlways makes the store check the database's clock each time, instead of once a minute.
func (s *Store) CheckClockAlways() { s.clock.every = 0 }

// AskEvery sets how often the listener checks its connection.
func (s *Store) AskEvery(d time.Duration) { s.notifier.ask = d }

// ShardOf returns the shard of an account.
func ShardOf(account string) int16 { return shardOf(account) }

// Indexed and the other constants are the settings that statements run with.
const (
	Indexed = `select ` + indexed
	LookUp  = `select ` + lookUp
	InOrder = Indexed + `, ` + inOrder
)

// ClaimedEvents returns the statement with which Load reads events.
func ClaimedEvents(option Option) string { return optionsOf([]Option{option}).names.in(loadedEvents) }

// Migrating adds a migration with the given text to the migrations that a node knows.
func Migrating(text string) Option {
	return func(o *options) {
		m := migration{len(o.migrations) + 1, text, sha256.Sum256([]byte(text))}
		o.migrations = append(slices.Clip(o.migrations), m)
	}
}

// ListFailed returns the statement that lists failed deliveries.
func ListFailed(options ...Option) string { return optionsOf(options).names.in(listFailed) }

// TrimAuditEntries and PurgeAuditEntries return the statements that remove old audit entries.
func TrimAuditEntries(option Option) string {
	return optionsOf([]Option{option}).names.in(trimAuditEntries)
}
func PurgeAuditEntries(option Option) string {
	return optionsOf([]Option{option}).names.in(purgeAuditEntries)
}

// SchemaOf returns the name that InSchema was given.
func SchemaOf(option Option) string { return optionsOf([]Option{option}).schema }

// Queues are the functions that a node calls to load, pause and unload its shards. All must be set.
type Queues struct {
	Load     func(ctx context.Context, shards []int16) error
	Pause    func(shards []int16)
	UnderWay func(shard int16) int
	Unload   func(shards []int16)
}

// A testHost calls the functions of a test in place of a store's methods that load and unload
// shards.
type testHost struct {
	nodeStore
	queues Queues
}

func (h testHost) LoadShards(ctx context.Context, list []int16) error {
	return h.queues.Load(ctx, list)
}
func (h testHost) PauseShards(list []int16)  { h.queues.Pause(list) }
func (h testHost) UnloadShards(list []int16) { h.queues.Unload(list) }

func (h testHost) UnderWay() map[int16]int {
	busy := make(map[int16]int)
	for shard := range int16(shards.Count) {
		busy[shard] = h.queues.UnderWay(shard)
	}
	return busy
}

// Owning lets a test own shards with the Queues of the test.
type Owning struct {
	s     *Store
	begin *sync.Once
}

// Owning makes the store own shards for the queues q, with the node lifetime lasts.
func (s *Store) Owning(q Queues, lasts time.Duration) Owning {
	s.node.Host, s.node.Lasts = testHost{nodeStore{s}, q}, lasts
	return Owning{s, new(sync.Once)}
}

// Join makes the node own shards until its store is closed. It returns nil once the node has begun
// to load its share in a current term, or an error if the node cannot take its share.
func (o Owning) Join(ctx context.Context) error {
	o.begin.Do(func() {
		o.s.owned.begin(nil)
		o.s.node.Go(o.s.node.Deliver)
	})
	return o.s.joined(ctx)
}

// joined returns nil once the node has begun to load its share, or an error if the node cannot take
// its share.
func (s *Store) joined(ctx context.Context) error {
	for {
		switch {
		case s.node.Context().Err() != nil:
			return store.ErrClosed
		case ctx.Err() != nil:
			return ctx.Err()
		}
		s.owned.mu.Lock()
		joined, err := s.owned.joined, cmp.Or(s.owned.troubles[:]...)
		s.owned.mu.Unlock()
		if err != nil || joined && s.node.Current() != 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
func (o Owning) Node() int64               { return o.s.node.Current() }
func (o Owning) Newest() int64             { return o.s.node.Newest() }
func (o Owning) OwnerOf(shard int16) int64 { owner, _ := o.s.node.OwnerOf(shard); return owner }
func (o Owning) Gone(term int64)           { o.s.node.Gone(term) }
func (o Owning) Kill()                     { o.s.Kill() }

// Settling returns the lock that settlements read-lock.
func (o Owning) Settling() *sync.RWMutex { return &o.s.settling }

// Listen listens until ctx is done. It calls wake when it begins to listen and at each
// notification.
func (s *Store) Listen(ctx context.Context, wake func()) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.node.Context(), cancel)()
	group.Go(func() { s.listens(ctx) })
	for {
		select {
		case <-s.owned.reader.woken:
			wake()
		case <-ctx.Done():
			return
		}
	}
}

// Listening reports whether the node listens and no host publishes in transactions.
func (s *Store) Listening() bool { return s.owned.reader.polls.Interval(0) > 0 }

// Lasts sets how long the node stays alive without a heartbeat. Call it before Deliver.
func (s *Store) Lasts(d time.Duration) { s.node.Lasts = d }

// ReadsEvery returns the approximate interval at which the node reads the change feed.
func (s *Store) ReadsEvery(ctx context.Context) (time.Duration, error) {
	if err := s.owned.beginReading(ctx); err != nil {
		return 0, err
	}
	defer s.owned.endReading()
	return s.owned.reader.polls.Interval(s.options.poll), nil
}

// Kill ends the node's work as if the process had been killed, so that other nodes must remove its
// term.
func (s *Store) Kill() {
	s.node.Stop()
	s.node.Wait()
	s.node.Database = killed{s.node.Database}
}

// A killed is the shards.Database of a killed node, which does not deregister.
type killed struct{ shards.Database }

func (killed) Remove(context.Context, int64, *int64) error { return nil }

// CheckParts makes the next publication check whether more parts are needed.
func (s *Store) CheckParts() { s.sparePartsAt.Store(0) }

// ChangeIDs makes a part of event_ids that begins after the given time from now.
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

// Join makes the node report its deliveries to a scheduler that delivers nothing, until the node is
// closed. It returns when all pending deliveries are reported. dueIn returns how many deliveries
// are due within the given time.
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
		due := make(map[driver.DeliveryRef]time.Time)
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

// Doubts returns the doubt of a confirmed clock after each observation. Before these observations
// the clock is observed at time 0.
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

// Count returns a Counter that counts the deliveries reported to its scheduler.
func (s *Store) Count() *Counter { return &Counter{Store: s, of: make(map[string]map[uint64]int)} }

// Deliver implements [driver.Deliveries].
func (c *Counter) Deliver(ctx context.Context, to driver.Scheduler) error {
	return c.Store.Deliver(ctx, countedScheduler{to, c})
}

type countedScheduler struct {
	driver.Scheduler
	counter *Counter
}

func (s countedScheduler) Add(list []driver.PendingDelivery) {
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

// Reported returns how many distinct deliveries of the webhook were reported, and the total number
// of reports.
func (c *Counter) Reported(webhookID string) (deliveries, reports int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.of[webhookID] {
		deliveries, reports = deliveries+1, reports+n
	}
	return deliveries, reports
}

// Failing returns the number of shards that cannot be read.
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
