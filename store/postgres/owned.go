package postgres

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres/internal/feed"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

// ownedShards is a node's in-memory state of the shards it owns. It reports their pending
// deliveries to a scheduler.
type ownedShards struct {
	turn chan struct{} // held by the call to Deliver that reports

	reading chan struct{} // held by the call that reads the change feed or begins loading
	reader  feedReader    // guarded by reading
	clock   databaseClock

	mu        sync.Mutex
	scheduler driver.Scheduler // from Deliver; if nil, nothing is reported
	byNo      map[int64]*ownedWebhook
	byID      map[string]*ownedWebhook
	shards    map[int16]*feed.Snapshot // shards in memory, each with the snapshot of its last read
	paused    map[int16]bool           // shards in memory in which no attempts begin
	kept      int                      // number of webhooks with a cached decoded form
	loads     loads

	troubles [troubles]error // current problem of each kind
	reported error           // the trouble reported to the scheduler
	joined   bool            // the first shards have begun loading
	complete bool            // the first shards were reported as loaded
}

func (o *ownedShards) start() {
	o.turn, o.reading = make(chan struct{}, 1), make(chan struct{}, 1)
	o.reader.woken, o.reader.polls.Trusted = make(chan struct{}, 1), shards.NodeLasts
	o.byNo, o.byID = make(map[int64]*ownedWebhook), make(map[string]*ownedWebhook)
	o.shards, o.paused = make(map[int16]*feed.Snapshot), make(map[int16]bool)
	o.loads = loads{of: make(map[int16]*shardLoad), changed: make(chan struct{}, 1)}
}

// An ownedWebhook is a webhook that has or had pending deliveries in a shard in memory, as of the
// last read of its row.
type ownedWebhook struct {
	no          int64
	id, account string
	shard       int16
	version     uint64
	health      driver.WebhookHealth
	held        bool
	pausedUntil time.Time
	kept        decodedWebhook
}

// brief returns the webhook without the fields that only an attempt needs.
func (w *ownedWebhook) brief() *driver.Webhook {
	return &driver.Webhook{ID: w.id, Account: w.account, WebhookHealth: w.health, Version: w.version, Held: w.held, PausedUntil: w.pausedUntil}
}

// maxKept is the maximum number of decoded webhooks cached for attempts, at about 1 KiB each. Load
// reads a webhook that is not cached.
const maxKept = 16_384

// A decodedWebhook is a webhook decoded from its row. Attempts share it.
type decodedWebhook struct {
	version uint64
	webhook *driver.Webhook // nil means not cached
	err     error           // a secret cannot be read
}

// keep caches a decoded webhook for attempts. It evicts other webhooks if more than maxKept are
// cached.
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

// begin starts reporting pending deliveries to a scheduler; end stops it.
func (o *ownedShards) begin(to driver.Scheduler) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.scheduler, o.troubles, o.reported, o.joined, o.complete = to, [troubles]error{}, nil, false, false
}

func (o *ownedShards) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.scheduler = nil
}

// owns reports whether this node serves the shard and has not paused it.
func (s *Store) owns(shard int16) bool {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shards[shard] != nil && !o.paused[shard]
}

// groupOf returns the group of a shard, which is never 0.
func groupOf(shard int16) driver.Group { return driver.Group(shard) + 1 }

// PauseShards implements [shards.Host]. No new attempts begin in the shards; running attempts finish.
func (s nodeStore) PauseShards(shards []int16) {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		o.paused[shard] = true
	}
	if o.scheduler != nil && len(shards) > 0 {
		o.scheduler.Pause(column(shards, groupOf))
	}
}

// UnderWay implements [shards.Host]. It returns the number of running attempts of each shard that
// has any.
func (s nodeStore) UnderWay() map[int16]int {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	busy := make(map[int16]int)
	if o.scheduler != nil {
		for group, n := range o.scheduler.UnderWay() {
			busy[int16(group-1)] = n
		}
	}
	return busy
}

// UnloadShards implements [shards.Host]. It forgets the pending deliveries of the shards. Their
// running attempts can no longer be settled.
func (s nodeStore) UnloadShards(shards []int16) {
	o := &s.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		if o.scheduler != nil && o.shards[shard] != nil {
			o.scheduler.Forget(driver.Scope{Group: groupOf(shard)})
		}
		delete(o.shards, shard)
		delete(o.paused, shard)
		delete(o.loads.of, shard)
	}
	for _, w := range o.byNo {
		if slices.Contains(shards, w.shard) {
			o.forget(w)
		}
	}
}

func (o *ownedShards) forget(w *ownedWebhook) {
	if w.kept.webhook != nil {
		o.kept--
	}
	delete(o.byNo, w.no)
	delete(o.byID, w.id)
}

// served returns the shards in memory and the earliest of their snapshots.
func (o *ownedShards) served() (shards []int16, from *feed.Snapshot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for shard, since := range o.shards {
		shards = append(shards, shard)
		if from == nil || since.Number < from.Number {
			from = since
		}
	}
	return shards, from
}

// An ownedRow is a webhook's row.
type ownedRow struct {
	webhookRow
	no int64
}

// ownedWebhooks selects the webhooks $1.
const ownedWebhooks = `
	select w.no, ` + webhookColumns + `
	from unnest((select $1::bigint[])) as k (no)
	cross join lateral (select * from storageapi.webhooks where no = k.no limit 1) w`

func scanOwned(row pgx.Row) (r ownedRow, err error) {
	err = row.Scan(append([]any{&r.no}, r.columns()...)...)
	return r, err
}

// deleted removes a deleted webhook from memory and reports its deletion.
func (o *ownedShards) deleted(no int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.byNo[no]; w != nil {
		o.gone(w)
	}
}

// gone removes a webhook from memory and reports its deletion. The caller must hold the lock.
func (o *ownedShards) gone(w *ownedWebhook) {
	o.forget(w)
	if o.scheduler != nil {
		o.scheduler.Forget(driver.Scope{WebhookID: w.id})
	}
}

// erased reports that the account of a webhook is being erased.
func (o *ownedShards) erased(no int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.byNo[no]; w != nil && o.scheduler != nil {
		o.scheduler.Forget(driver.Scope{Account: w.account})
	}
}

// learn updates a webhook in memory from its row.
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
				return // the row is of a deleted webhook whose id was used again
			}
			o.gone(before)
		}
		o.byNo[w.no], o.byID[w.id] = w, w
	}
	if r.Version < w.version {
		return // a newer row was read meanwhile
	}
	o.keep(w, decoded)
	w.version, w.health, w.held, w.pausedUntil = r.Version, r.WebhookHealth, r.Held, r.PausedUntil
}

// updated reports a webhook that this node has just changed, if the webhook is in memory. Attempts
// in flight may end at any moment, and the scheduler must evaluate their results by the new state.
func (o *ownedShards) updated(webhook driver.Webhook) {
	fields.Copy((*listed.Webhook)(&webhook))
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.byID[webhook.ID]; w != nil && w.version < webhook.Version && o.scheduler != nil {
		o.scheduler.Webhook(&webhook)
	}
}

// A queuedRow is a delivery's row.
type queuedRow struct {
	webhook, event   int64
	recovered, first bool
	due              time.Time // by the confirmed clock
	attempts, before int
}

// due converts a delivery's due time to this node's clock. The clock may have been ahead when the
// time was written, or the time may come from a dump of another server. So a delivery that has not
// been attempted since it became pending is due now at the latest. The scheduler bounds the due
// times of all others.
func (o *ownedShards) due(at time.Time, attempts, before int) time.Time {
	due, now := o.clock.here(at), time.Now()
	if attempts == before && due.After(now) {
		return now
	}
	return due
}

// report reports deliveries whose webhooks are in memory. It skips all others, whose webhooks are
// deleted.
func (o *ownedShards) report(rows []queuedRow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.scheduler != nil {
		o.add(rows)
	}
}

// add is like report, but the caller must hold the lock, and there must be a scheduler.
func (o *ownedShards) add(rows []queuedRow) {
	list := make([]driver.PendingDelivery, 0, len(rows))
	briefs := make(map[int64]*driver.Webhook)
	for i := range rows {
		r := &rows[i]
		w := o.byNo[r.webhook]
		if w == nil {
			continue
		}
		webhook := cmp.Or(w.kept.webhook, briefs[w.no])
		if webhook == nil {
			webhook = w.brief()
			briefs[w.no] = webhook
		}
		list = append(list, driver.PendingDelivery{
			Number: uint64(r.event), Webhook: webhook, Group: groupOf(w.shard), Due: o.due(r.due, r.attempts, r.before),
			Attempts: r.attempts, Before: r.before, Recovered: r.recovered, First: r.first,
		})
	}
	if len(list) > 0 {
		o.scheduler.Add(list)
	}
}

// reportChanges reports changes. found has the current state of the changed webhooks.
func (o *ownedShards) reportChanges(list []changeRow, found map[int64]decodedWebhook) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.scheduler == nil {
		return
	}
	var added []queuedRow // in feed order: the last of several redeliveries is sent first
	for i := range list {
		r := &list[i]
		if r.there && (r.kind == changeAdded || r.kind == changeFirst) {
			added = append(added, r.queuedRow)
		}
		w := o.byNo[r.webhook]
		if w == nil {
			continue
		}
		if r.kind == changeNudge {
			o.add(added)
			added = nil
		}
		if webhook := found[r.webhook].webhook; r.kind == changeWebhook && webhook != nil {
			o.scheduler.Webhook(webhook)
		}
		if r.kind == changeNudge && r.there {
			o.scheduler.Nudge(driver.DeliveryRef{WebhookID: w.id, Number: uint64(r.event)})
		}
		if r.kind == changeFirst || r.kind == changeNudge || r.kind == changeProbe {
			o.scheduler.Probe(w.id)
		}
	}
	o.add(added)
}

// Kinds of problems that keep a node from reporting pending deliveries.
const (
	troubleBeat  = iota // the node cannot register, or lost its shards
	troubleShare        // the node cannot take, load or release shards
	troubleFeed         // the change feed cannot be read
	troubleLoad         // pages of a shard cannot be read
	troubles
)

// setTrouble records err as the current problem of this kind; nil clears it.
func (o *ownedShards) setTrouble(kind int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trouble(kind, err)
}

// trouble is like setTrouble, but the caller must hold the lock. It reports the first problem to
// the scheduler, and reports nil once all problems have ended and the first shards are loaded.
func (o *ownedShards) trouble(kind int, err error) {
	o.troubles[kind] = err
	err = cmp.Or(o.troubles[:]...)
	switch {
	case o.scheduler == nil:
	case err != nil && o.reported == nil:
		o.reported = err
		o.scheduler.Trouble(err)
	case err == nil && o.joined && len(o.loads.of) == 0 && (o.reported != nil || !o.complete):
		o.reported, o.complete = nil, true
		o.scheduler.Trouble(nil)
	}
}

// shared records the result of the latest balancing. After the first success, loading of the first
// shards has begun.
func (o *ownedShards) shared(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.joined = o.joined || err == nil
	o.trouble(troubleShare, err)
}
