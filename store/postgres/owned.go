package postgres

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// ownedShards are what a node has in memory of its shards: what is pending, in the queue, and the
// webhooks it is pending for. A shard is served from when it begins to load to when it is paused.
type ownedShards struct {
	queue queue.Queue        // what ClaimDeliveries claims from, unless Deliver is called
	feed  webhooks.Scheduler // of Deliver; guarded by mu
	turn  chan struct{}      // held by the one call of Deliver that reports

	// Guarded by mu: why something cannot be read, and what the feed was told of that.
	troubles [troubles]error
	told     error
	joined   bool // the first shards have begun to load
	complete bool // the feed was told that they are loaded

	longestRetry atomic.Int64 // a time.Duration: see [webhooks.Claim.LongestRetry]

	looks chan struct{} // held by the one call that looks or loads
	look  look          // guarded by looks
	clock databaseClock

	mu     sync.Mutex
	byNo   map[int64]*ownedWebhook
	byID   map[string]*ownedWebhook
	shards map[int16]*horizon // that are loaded, and up to where their changes were read
	paused map[int16]bool     // of them, those that claims have nothing of
	kept   int                // webhooks that are kept for tasks
	loads  loads

	// missed are deliveries that were made due again, as was read while they were leased. If that was
	// after their settlement, the queue would not know of them once their leases end.
	missed map[deliveryPair]queuedRow
}

func (o *ownedShards) start() {
	o.looks = make(chan struct{}, 1)
	o.longestRetry.Store(int64(longestRetry))
	o.look.frequency.wakes = pollFromWakes
	o.byNo, o.byID = make(map[int64]*ownedWebhook), make(map[string]*ownedWebhook)
	o.shards, o.paused = make(map[int16]*horizon), make(map[int16]bool)
	o.turn = make(chan struct{}, 1)
	o.look.woken = make(chan struct{}, 1)
	o.loads = loads{of: make(map[int16]*shardLoad), changed: make(chan struct{}, 1)}
	o.missed = make(map[deliveryPair]queuedRow)
}

const (
	longestRetry = 48 * time.Hour // if claims do not tell
	longestRest  = time.Hour      // webhooks rest for a minute at most
)

// An ownedWebhook is a webhook for which something is or was pending in a shard that is
// loaded, as it was when its row was read last.
type ownedWebhook struct {
	no          int64
	id, account string
	version     uint64
	shard       int16
	standing    queue.Standing
	claimable   bool
	healthy     bool // it is proven, did not fail since and does not rest: a delivery says nothing new
	kept        decodedWebhook

	health webhooks.WebhookHealth
	held   bool
}

// brief returns the webhook without what only an attempt needs.
func (w *ownedWebhook) brief() *webhooks.Webhook {
	return &webhooks.Webhook{ID: w.id, Account: w.account, WebhookHealth: w.health, Version: w.version, Held: w.held}
}

// maxKept is how many webhooks are kept for tasks, about 1 KiB each. Claims read the others.
const maxKept = 16_384

// A decodedWebhook is a webhook as tasks have it, who share it.
type decodedWebhook struct {
	version uint64
	webhook *webhooks.Webhook // nil: it is not kept
	err     error             // it cannot be read
}

// keep keeps a webhook for tasks, and no longer some others if there are too many.
func (o *ownedShards) keep(w *ownedWebhook, decoded decodedWebhook) {
	if w.kept.webhook == nil {
		o.kept++
	}
	for _, other := range o.byNo {
		if o.kept <= maxKept {
			break
		}
		if other != w && other.kept.webhook != nil {
			other.kept = decodedWebhook{}
			o.kept--
		}
	}
	w.kept = decoded
}

// owns reports whether this node serves the shard.
func (s *Store) owns(shard int16) bool {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shards[shard] != nil && !o.paused[shard]
}

// leased reports whether a delivery is being attempted on this node.
func (s *Store) leased(webhookID string, event int64) bool {
	return s.owned.queue.Leased(webhookID, uint64(event))
}

// reserve is [queue.Queue.Reserve].
func (s *Store) reserve(webhookID string, events []int64) (tokens map[uint64]uint64) {
	seqs := make([]uint64, len(events))
	for i, event := range events {
		seqs[i] = uint64(event)
	}
	return s.owned.queue.Reserve(webhookID, seqs)
}

// pauseShards lets no more claims have anything of the shards. What is under way goes on.
func (s *Store) pauseShards(shards []int16) {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		o.paused[shard] = true
	}
	if o.feed != nil {
		o.feed.Pause(column(shards, groupOf))
		return
	}
	for _, w := range o.byNo {
		if o.paused[w.shard] {
			o.queue.Pause(w.id)
		}
	}
}

// groupOf returns the group of a shard, which is not 0.
func groupOf(shard int16) webhooks.Group { return webhooks.Group(shard) + 1 }

// underWay returns how many attempts are under way in each shard with some.
func (s *Store) underWay() map[int16]int {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	busy := make(map[int16]int)
	if o.feed != nil {
		for group, n := range o.feed.UnderWay() {
			busy[int16(group-1)] = n
		}
		return busy
	}
	for id, n := range o.queue.UnderWay(time.Now()) {
		if w := o.byID[id]; w != nil {
			busy[w.shard] += n
		}
	}
	return busy
}

// unloadShards forgets what is pending in the shards. What is under way there cannot be settled
// any more.
func (s *Store) unloadShards(shards []int16) {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		delete(o.shards, shard)
		delete(o.paused, shard)
		o.loads.end(shard)
		if o.feed != nil {
			o.feed.Forget(webhooks.Scope{Group: groupOf(shard)})
		}
	}
	for _, w := range o.byNo {
		if slices.Contains(shards, w.shard) {
			o.forget(w)
		}
	}
}

func (o *ownedShards) forget(w *ownedWebhook) {
	o.queue.Drop(w.id)
	if w.kept.webhook != nil {
		o.kept--
	}
	delete(o.byNo, w.no)
	delete(o.byID, w.id)
	maps.DeleteFunc(o.missed, func(pair deliveryPair, _ queuedRow) bool { return pair.webhook == w.no })
}

// served returns the shards that are loaded, and of these the earliest horizon.
func (o *ownedShards) served() (shards []int16, from *horizon) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for shard, since := range o.shards {
		shards = append(shards, shard)
		if from == nil || since.number < from.number {
			from = since
		}
	}
	return shards, from
}

// An ownedRow is a webhook as the table has it.
type ownedRow struct {
	webhookRow
	no   int64
	rest *float64 // seconds
}

// ownedWebhooks selects the webhooks $1.
const ownedWebhooks = `
	select w.no, extract(epoch from w.rests_until - ` + confirmedNow + `)::float8, ` + webhookColumns + `
	from unnest((select $1::bigint[])) as k (no)
	cross join lateral (select * from storageapi.webhooks where no = k.no limit 1) w`

func scanOwned(row pgx.Row) (r ownedRow, err error) {
	err = row.Scan(append([]any{&r.no, &r.rest}, r.fields()...)...)
	return r, err
}

// deleted forgets a webhook that is deleted.
func (o *ownedShards) deleted(no int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.byNo[no]; w != nil {
		o.gone(w)
	}
}

// gone forgets a webhook, with the lock, and reports that it is deleted.
func (o *ownedShards) gone(w *ownedWebhook) {
	o.forget(w)
	if o.feed != nil {
		o.feed.Forget(webhooks.Scope{WebhookID: w.id})
	}
}

// erased reports that the account of a webhook is being erased.
func (o *ownedShards) erased(no int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.byNo[no]; w != nil && o.feed != nil {
		o.feed.Forget(webhooks.Scope{Account: w.account})
	}
}

// learn notes what a webhook is now, and tells the queue.
func (o *ownedShards) learn(r *ownedRow, decoded decodedWebhook) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.byNo[r.no]
	if w == nil {
		w = &ownedWebhook{no: r.no, id: r.ID, account: r.Account, shard: shardOf(r.Account)}
		if o.shards[w.shard] == nil {
			return
		}
		if before := o.byID[w.id]; before != nil {
			if before.no > w.no {
				return // it was deleted, and made again with its id
			}
			o.gone(before)
		}
		o.byNo[w.no], o.byID[w.id] = w, w
	}
	if r.Version < w.version {
		return // it was read again meanwhile
	}
	o.keep(w, decoded)
	w.health, w.held = r.WebhookHealth, r.Held
	w.version, w.claimable, w.standing = r.Version, r.Claimable(), queue.Untried
	switch {
	case !r.FailingSince.IsZero():
		w.standing = queue.Failing
	case !r.ProvenAt.IsZero():
		w.standing = queue.Proven
	}
	w.healthy = w.standing == queue.Proven && r.WarnedAt.IsZero() && r.rest == nil
	if o.feed == nil {
		o.tell(w, r)
	}
}

// tell tells the queue of a webhook's state.
func (o *ownedShards) tell(w *ownedWebhook, r *ownedRow) {
	o.queue.SetStanding(w.id, w.standing)
	if w.claimable && !o.paused[w.shard] {
		o.queue.Resume(w.id)
	} else {
		o.queue.Pause(w.id)
	}
	if r.rest != nil { // also one that is over: the receiver has not recovered
		o.queue.Rest(w.id, time.Now().Add(min(seconds(*r.rest), longestRest)))
	} else {
		o.queue.EndRest(w.id)
	}
}

func seconds(n float64) time.Duration { return time.Duration(min(n, 1e9) * float64(time.Second)) }

// A queuedRow is a delivery as the table has it.
type queuedRow struct {
	webhook, event   int64
	recovered, first bool
	due              time.Time // by the confirmed clock
	attempts, before int
}

// due returns when a delivery is due here that is due at that time in the table. The clock may have been ahead
// when that was written, or be another's, of where a dump was made: so what was not attempted since it
// became pending is due now at the latest, and all else after the longest retry.
func (o *ownedShards) due(at time.Time, attempts, before int) time.Time {
	latest := time.Now()
	if attempts > before {
		latest = latest.Add(time.Duration(o.longestRetry.Load()))
	}
	if due := o.clock.here(at); due.Before(latest) {
		return due
	}
	return latest
}

// report reports deliveries of webhooks that are known, and keeps the list no longer.
func (o *ownedShards) report(rows []queuedRow) {
	list := make([]webhooks.PendingDelivery, 0, len(rows))
	dues := make([]time.Time, len(rows))
	for i := range rows {
		dues[i] = o.due(rows[i].due, rows[i].attempts, rows[i].before)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.feed == nil {
		return
	}
	briefs := make(map[int64]*webhooks.Webhook)
	for i := range rows {
		r := &rows[i]
		w := o.byNo[r.webhook]
		if w == nil {
			continue // deleted
		}
		webhook := cmp.Or(w.kept.webhook, briefs[w.no])
		if webhook == nil {
			webhook = w.brief()
			briefs[w.no] = webhook
		}
		list = append(list, webhooks.PendingDelivery{
			Number: uint64(r.event), Webhook: webhook, Group: groupOf(w.shard), Due: dues[i],
			Attempts: r.attempts, Before: r.before, Recovered: r.recovered, First: r.first,
		})
	}
	if len(list) > 0 {
		o.feed.Add(list)
	}
}

// add adds a delivery of a webhook that is known; one that is waiting is replaced, and one
// that is being attempted stays as it is until its lease ends.
func (o *ownedShards) add(r *queuedRow, replaces bool) {
	due := o.due(r.due, r.attempts, r.before)
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.byNo[r.webhook]
	if w == nil {
		return // deleted
	}
	seq := uint64(r.event)
	if replaces {
		if o.queue.Leased(w.id, seq) {
			o.missed[deliveryPair{r.webhook, r.event}] = *r
			return
		}
		o.queue.Remove(w.id, seq)
	}
	o.queue.Add(queue.Pending{
		Webhook: w.id, Account: w.account, Seq: seq, Due: due,
		Attempts: r.attempts, Before: r.before, Recovered: r.recovered, First: r.first && !due.After(time.Now()), Standing: w.standing,
		Paused: !w.claimable || o.paused[w.shard],
	})
}

// endLease ends the lease of a delivery, and then adds it again if that was missed. What is not
// pending by now is dropped by the claim that gets it.
func (o *ownedShards) endLease(of deliveryPair, end func()) {
	o.mu.Lock()
	end()
	missed, ok := o.missed[of]
	delete(o.missed, of)
	o.mu.Unlock()
	if ok {
		o.add(&missed, true)
	}
}

// endReserved ends a reservation: the delivery is not pending any more, or it is as before. It
// does nothing if the reservation has ended.
func (s *Store) endReserved(of deliveryPair, token uint64, done bool) {
	s.owned.endLease(of, func() {
		if done {
			s.owned.queue.Done(token)
		} else {
			s.owned.queue.Release(token)
		}
	})
}
