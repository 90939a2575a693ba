package postgres

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// The kinds of lanes. Suspended is added to live or recovered.
const (
	live = iota
	recovered
	suspended
)

// kindOf are the bits of a kind without its generation.
const kindOf = 3

// A lane is the queue of a webhook's pending deliveries of one kind. Lanes take turns in
// the order of shard and webhook.
type lane struct {
	webhook int64
	shard   int16
	kind    int16  // and its generation
	id      string // of the webhook
	account string
	cap     int // leases that the claim allows the webhook
	held    int // leases that it has

	accountHeld int // leases that its account has, counted up to the most it may have

	awake  bool
	proven bool
	probe  bool // a probe was asked for
	known  cachedWebhook
}

// crowded reports whether the account has as many leases as it may.
func (l lane) crowded(claim *webhooks.Claim) bool {
	return claim.PerAccount > 0 && l.accountHeld >= claim.PerAccount
}

func (l lane) position() position { return position{l.shard, l.webhook} }

// A position is a point in the order of turns.
type position struct {
	shard   int16
	webhook int64
}

var last = position{shards, 0} // after all lanes

func (a position) after(b position) bool {
	return a.shard > b.shard || a.shard == b.shard && a.webhook > b.webhook
}

// turns remember the lane that had its turn last: of each kind, and in claims for
// named webhooks alone.
type turns struct {
	mu        sync.Mutex
	positions [2]position
	capped    position

	full bool      // the last claim came back full from its first scan
	seen time.Time // when a claim last scanned more than lanes

	perAccount int             // in the last claim for all webhooks
	zeroCaps   map[string]bool // webhooks whose cap was 0 in it; never changed

	resumed []string  // webhooks that may have attempts again, and may have suspended lanes
	back    time.Time // when to scan all suspended lanes next
}

// start starts at a random position, so that nodes do not run in step.
func (t *turns) start() {
	at := position{int16(rand.N(shards)), 0}
	t.positions, t.capped = [2]position{at, at}, at
}

func (t *turns) of(kind int16) position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.positions[kind]
}

// pass records that there was nothing to claim up to that lane.
func (t *turns) pass(l lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.positions[l.kind&recovered] = l.position()
}

// served records the last lanes that a claim leased from, by kind.
func (t *turns) served(capped bool, lanes [2]*lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind, l := range lanes {
		switch {
		case l == nil:
		case capped:
			t.capped = l.position()
		default:
			t.positions[kind] = l.position()
		}
	}
}

// maxLanesOnly is how long claims that come back full may scan nothing but lanes.
const maxLanesOnly = 100 * time.Millisecond

// lanesOnly reports whether a claim needs to scan only lanes.
func (t *turns) lanesOnly() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full && time.Since(t.seen) < maxLanesOnly
}

// scanned records whether a claim scanned only lanes, and whether it came back full.
func (t *turns) scanned(lanesOnly, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full = full; !lanesOnly {
		t.seen = time.Now()
	}
}

// maxSuspended is how long it may take to notice that a webhook may have attempts again,
// if another node resumed it or its rest has ended.
const maxSuspended = time.Second

const maxResumed = 100

// resume makes the next claim scan the suspended lanes of a webhook.
func (t *turns) resume(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.resumed) == maxResumed { // this node may not be claiming
		t.resumed, t.back = nil, time.Time{}
	}
	if !slices.Contains(t.resumed, id) { // no lane is claimed from twice at once
		t.resumed = append(t.resumed, id)
	}
}

// scansSuspended returns the webhooks whose suspended lanes to scan, and whether to scan
// those of all webhooks.
func (t *turns) scansSuspended() (resumed []string, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	resumed, t.resumed = t.resumed, nil
	now := time.Now()
	if all = !now.Before(t.back); all {
		t.back = now.Add(maxSuspended)
	}
	return resumed, all
}

// awake are webhooks that may have attempts.
const awake = `(active and held is not true and (rests_until is null or rests_until <= clock_timestamp()))`

// laneFields selects lanes of the kind s.kind.
const laneFields = `
	select l.webhook, l.shard, s.kind, w.id, w.account, h.held, w.awake, w.proven
	from lane l
	cross join lateral (select id, account, ` + awake + ` as awake, proven_at is not null and failing_since is null as proven
		from storageapi.webhooks where no = l.webhook limit 1) w
	cross join lateral (
		select count(*)::integer as held from storageapi.leases where account = w.account and webhook = l.webhook and until > clock_timestamp()) h
	where `

// unleased holds for lanes with a ready delivery that is not leased.
const unleased = `
	exists (
		select from storageapi.queue q where not q.parked and q.kind = s.kind and q.shard = l.shard and q.webhook = l.webhook and not exists (
			select from storageapi.leases where account = w.account and webhook = q.webhook and event = q.event and until > clock_timestamp()))`

// counted adds the number of leases of each lane's account, counted once an account and up to most.
func counted(lanes, most string) string {
	return `
	select webhook, shard, kind, id, account, held, awake, proven, max(of_account) over (partition by account) from (
		select *, case when row_number() over (partition by account order by place) = 1 then (
			select count(*) from (select from storageapi.leases where account = l.account and until > clock_timestamp() limit ` + most + `::integer) of) end as of_account
		from (select *, row_number() over () as place from (` + lanes + `) l) l) l
	order by place`
}

// walk goes from each lane with a ready delivery to the next, $6 lanes at most, through
// the given key ranges. It skips lanes whose webhooks are not awake, unless $7. It reads
// one index entry a lane, regardless of the length of its queue, unless some of it is
// leased.
var walk = counted(`
	select l.* from (
		select (g.kind + w.kind)::smallint as kind, w.from_shard, w.from_webhook, w.to_shard, w.to_webhook
		from unnest($1::smallint[], $2::smallint[], $3::bigint[], $4::smallint[], $5::bigint[])
			with ordinality as w (kind, from_shard, from_webhook, to_shard, to_webhook, place)
		cross join `+generations+` order by w.place, g.kind) s
	cross join lateral (
		with recursive lane as (
			(select q.shard, q.webhook from storageapi.queue q
				where not q.parked and q.kind = s.kind and (q.shard, q.webhook) > (s.from_shard, s.from_webhook) and (q.shard, q.webhook) <= (s.to_shard, s.to_webhook)
				order by q.shard, q.webhook limit 1)
			union all
			select n.shard, n.webhook from lane cross join lateral (
				select q.shard, q.webhook from storageapi.queue q
				where not q.parked and q.kind = s.kind and (q.shard, q.webhook) > (lane.shard, lane.webhook) and (q.shard, q.webhook) <= (s.to_shard, s.to_webhook)
				order by q.shard, q.webhook limit 1) n
		)`+laneFields+` (w.awake or $7) and (not w.awake or held = 0 or `+unleased+`)
	) l limit $6`, "$8")

// named finds the lanes of the webhooks with the ids $1 that are awake, suspended lanes
// included.
var named = counted(`
	select l.* from `+kinds+` s
	cross join lateral (
		with lane as (
			select n.no as webhook, n.shard from unnest($1::text[]) as i (id)
			cross join lateral (select no, shard from storageapi.webhooks where id = i.id limit 1) n
		)`+laneFields+` w.awake and `+unleased+`
	) l`, "$2")
