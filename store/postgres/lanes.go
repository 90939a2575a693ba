package postgres

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// The kinds of lanes, and what is added to those that were put aside.
const (
	live = iota
	recovered
	aside
)

// kindOf are the bits of a kind that are not of its generation.
const kindOf = 3

// A lane is what a webhook is owed of one kind. Lanes take their turns in the order
// of shard and webhook.
type lane struct {
	webhook int64
	shard   int16
	kind    int16  // and its generation
	id      string // of the webhook
	account string
	cap     int // leases that the claim allows the webhook
	held    int // leases that it has

	accountHeld int // leases that its account has, those that it may have at most

	awake  bool
	proven bool
	probe  bool // it is claimed from because somebody asked for that
	known  cachedWebhook
}

// crowded reports whether the account has as many leases as it may.
func (l lane) crowded(claim *webhooks.Claim) bool {
	return claim.PerAccount > 0 && l.accountHeld >= claim.PerAccount
}

func (l lane) spot() spot { return spot{l.shard, l.webhook} }

// A spot is a place in the order of turns.
type spot struct {
	shard   int16
	webhook int64
}

var last = spot{shards, 0} // after all lanes

func (a spot) after(b spot) bool {
	return a.shard > b.shard || a.shard == b.shard && a.webhook > b.webhook
}

// turns remembers which lanes had their turn last: of each kind, and in claims for
// named webhooks alone.
type turns struct {
	mu     sync.Mutex
	spots  [2]spot
	capped spot

	full bool      // the last claim was, at its first look
	seen time.Time // when a claim last looked at more than lanes

	awoken []string  // webhooks of which something may have been put aside, and that are awake
	back   time.Time // when to look next at all that was
}

// start begins somewhere, so that nodes do not go in step.
func (t *turns) start() {
	at := spot{int16(rand.N(shards)), 0}
	t.spots, t.capped = [2]spot{at, at}, at
}

func (t *turns) of(kind int16) spot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spots[kind]
}

// pass notes that there was nothing to claim up to that lane.
func (t *turns) pass(l lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spots[l.kind&recovered] = l.spot()
}

// served notes the last lanes that a claim leased from, by kind.
func (t *turns) served(capped bool, lanes [2]*lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind, l := range lanes {
		switch {
		case l == nil:
		case capped:
			t.capped = l.spot()
		default:
			t.spots[kind] = l.spot()
		}
	}
}

// maxBrief is for how long claims that come back full may look at nothing but lanes.
const maxBrief = 100 * time.Millisecond

// brief reports whether a claim need not look at more than lanes.
func (t *turns) brief() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full && time.Since(t.seen) < maxBrief
}

// looked notes that a claim looked at the lanes alone, or at all there is to see, and
// whether it came back full.
func (t *turns) looked(brief, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full = full; !brief {
		t.seen = time.Now()
	}
}

// maxAside is for how long a webhook that is awake again may go unnoticed, if another
// node knows of it or its rest has ended.
const maxAside = time.Second

const maxAwoken = 100

// awoke has the next claim look at what was put aside of a webhook.
func (t *turns) awoke(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.awoken) == maxAwoken { // this node may claim nothing
		t.awoken, t.back = nil, time.Time{}
	}
	if !slices.Contains(t.awoken, id) { // no lane is claimed from twice at once
		t.awoken = append(t.awoken, id)
	}
}

// looksBack returns the webhooks to look at what was put aside of, and whether to look
// at that of all.
func (t *turns) looksBack() (awoken []string, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	awoken, t.awoken = t.awoken, nil
	now := time.Now()
	if all = !now.Before(t.back); all {
		t.back = now.Add(maxAside)
	}
	return awoken, all
}

// awake are webhooks that may have attempts.
const awake = `(active and (rests_until is null or rests_until <= clock_timestamp()))`

// laneFields are of lanes of the kind s.kind.
const laneFields = `
	select l.webhook, l.shard, s.kind, w.id, w.account, h.held, w.awake, w.proven
	from lane l
	cross join lateral (select id, account, ` + awake + ` as awake, proven_at is not null and failing_since is null as proven
		from storageapi.webhooks where no = l.webhook limit 1) w
	cross join lateral (
		select count(*)::integer as held from storageapi.leases where account = w.account and webhook = l.webhook and until > clock_timestamp()) h
	where `

// unleased is true of lanes that have something ready which is not leased.
const unleased = `
	exists (
		select from storageapi.queue q where not q.parked and q.kind = s.kind and q.shard = l.shard and q.webhook = l.webhook and not exists (
			select from storageapi.leases where account = w.account and webhook = q.webhook and event = q.event and until > clock_timestamp()))`

// counted counts the leases of the lanes' accounts, once each, and no further than to most.
func counted(lanes, most string) string {
	return `
	select webhook, shard, kind, id, account, held, awake, proven, max(of_account) over (partition by account) from (
		select *, case when row_number() over (partition by account order by place) = 1 then (
			select count(*) from (select from storageapi.leases where account = l.account and until > clock_timestamp() limit ` + most + `::integer) of) end as of_account
		from (select *, row_number() over () as place from (` + lanes + `) l) l) l
	order by place`
}

// walk goes from one lane with something ready to the next, $6 at most: stretch by
// stretch, from after one spot to another. It passes over those whose webhooks are not
// awake, unless $7. It touches one entry of the index for each
// lane, however much that has ready, unless something of it is leased.
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

// named goes to the lanes of the webhooks of the ids $1 that are awake, also to those
// that were put aside.
var named = counted(`
	select l.* from `+kinds+` s
	cross join lateral (
		with lane as (
			select n.no as webhook, n.shard from unnest($1::text[]) as i (id)
			cross join lateral (select no, shard from storageapi.webhooks where id = i.id limit 1) n
		)`+laneFields+` w.awake and `+unleased+`
	) l`, "$2")
