package postgres

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// The kinds of lanes.
const (
	live = iota
	recovered
)

// A lane is what a webhook is owed of one kind. Lanes take their turns in the order
// of shard and webhook.
type lane struct {
	webhook int64
	shard   int16
	kind    int16
	id      string // of the webhook
	account string
	cap     int // leases that the claim allows the webhook
	held    int // leases that it has
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
// webhooks in Caps alone.
type turns struct {
	mu     sync.Mutex
	spots  [2]spot
	capped spot
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
	t.spots[l.kind] = l.spot()
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

// awake are webhooks that may have attempts.
const awake = `active and (rests_until is null or rests_until <= clock_timestamp())`

// laneFields are of a lane that has something ready which is not leased, of kind $1.
const laneFields = `
	select l.webhook, l.shard, $1::smallint as kind, w.id, w.account, h.held
	from lane l
	cross join lateral (select id, account from storageapi.webhooks where no = l.webhook and ` + awake + ` limit 1) w
	cross join lateral (
		select count(*)::integer as held from storageapi.leases where shard = l.shard and webhook = l.webhook and until > clock_timestamp()) h
	where exists (
		select from storageapi.queue q where not q.parked and q.kind = $1 and q.shard = l.shard and q.webhook = l.webhook and (h.held = 0 or not exists (
			select from storageapi.leases where shard = q.shard and webhook = q.webhook and event = q.event and until > clock_timestamp())))`

// walk goes from one lane with something ready to the next: from after the spot
// ($2, $3) to the spot ($4, $5). It touches one entry of the index for each lane,
// however much that has ready.
const walk = `
	with recursive lane as (
		(select shard, webhook from storageapi.queue
			where not parked and kind = $1 and (shard, webhook) > ($2::smallint, $3::bigint) and (shard, webhook) <= ($4::smallint, $5::bigint)
			order by shard, webhook limit 1)
		union all
		select n.shard, n.webhook from lane cross join lateral (
			select q.shard, q.webhook from storageapi.queue q
			where not q.parked and q.kind = $1 and (q.shard, q.webhook) > (lane.shard, lane.webhook) and (q.shard, q.webhook) <= ($4::smallint, $5::bigint)
			order by q.shard, q.webhook limit 1) n
	)` + laneFields

// named goes to the webhooks of the ids $2.
const named = `
	with lane as (
		select n.no as webhook, n.shard from unnest($2::text[]) as i (id)
		cross join lateral (select no, shard from storageapi.webhooks where id = i.id limit 1) n
	)` + laneFields

// crowded are the accounts that have as many leases as they may.
const crowded = `
	select account from storageapi.leases where until > clock_timestamp() group by account having count(*) >= $1`

// A sight is what a claim sees before it locks anything.
type sight struct {
	promoted int64    // made ready
	next     *float64 // seconds until something is due that is not; nil: nothing is
	crowded  map[string]bool
	expired  []int16 // shards in which leases have run out
	lanes    []lane  // to claim from, in turn
	rest     bool    // there may be lanes that were not looked at
}

// look makes ready what is due, and looks for lanes to claim from: in one round trip,
// unless most that have something ready are not for this claim.
func (s *Store) look(ctx context.Context, conn *pgxpool.Conn, claim *webhooks.Claim) (*sight, error) {
	sight := &sight{crowded: make(map[string]bool)}
	batch := &pgx.Batch{}
	batch.Queue(inClaim)
	batch.Queue(s.sql(promote), promoteStep).Exec(func(done pgconn.CommandTag) error {
		sight.promoted = done.RowsAffected()
		return nil
	})
	batch.Queue(s.sql(nextDue)).QueryRow(func(row pgx.Row) error { return row.Scan(&sight.next) })
	batch.Queue(s.sql(`select distinct shard from storageapi.leases where until <= clock_timestamp()`)).Query(func(rows pgx.Rows) (err error) {
		sight.expired, err = pgx.CollectRows(rows, pgx.RowTo[int16])
		return err
	})
	if claim.PerAccount > 0 {
		batch.Queue(s.sql(crowded), claim.PerAccount).Query(func(rows pgx.Rows) error {
			accounts, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, account := range accounts {
				sight.crowded[account] = true
			}
			return err
		})
	}
	if claim.PerWebhook == 0 {
		return sight, s.lookAtCapped(ctx, conn, batch, sight, claim)
	}
	return sight, s.lookAround(ctx, conn, batch, sight, claim)
}

// A stretch is a part of the way around the lanes of a kind: from after one spot to
// another.
type stretch struct {
	kind     int16
	from, to spot
}

// lookAround finds lanes in turn, the live ones first.
func (s *Store) lookAround(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, sight *sight, claim *webhooks.Claim) error {
	var way []stretch
	for kind := int16(live); kind <= recovered; kind++ {
		at := s.turns.of(kind)
		way = append(way, stretch{kind, at, last}, stretch{kind, spot{-1, 0}, at})
	}
	for looks := 1; ; looks++ {
		var seen []lane
		batch.Queue(s.sql(walks[len(way)]), s.walkArgs(way, claim.Limit)...).Query(func(rows pgx.Rows) (err error) {
			seen, err = pgx.CollectRows(rows, scanLane)
			return err
		})
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		for _, l := range seen {
			special, ok := claim.Caps[l.id]
			if l.cap = claim.PerWebhook; ok {
				l.cap = special
			}
			if l.held < l.cap && !sight.crowded[l.account] {
				sight.lanes = append(sight.lanes, l)
			}
		}
		if len(seen) < claim.Limit {
			return nil // that was the whole way
		}
		end := seen[len(seen)-1]
		for way[0].kind != end.kind || end.spot().after(way[0].to) || !end.spot().after(way[0].from) {
			way = way[1:]
		}
		way[0].from = end.spot()
		if sight.rest = len(sight.lanes) >= claim.Limit || looks == maxLooks; sight.rest {
			if len(sight.lanes) == 0 {
				s.turns.pass(end) // go on from here
			}
			return nil
		}
		batch = &pgx.Batch{}
		batch.Queue(indexed)
	}
}

var parameter = regexp.MustCompile(`\$\d`)

// walks are statements that go so many stretches.
var walks = func() (list [5]string) {
	for n := 1; n < len(list); n++ {
		for i := range n {
			if i > 0 {
				list[n] += ` union all `
			}
			part := parameter.ReplaceAllStringFunc(walk, func(p string) string {
				return "$" + strconv.Itoa(5*i+int(p[1]-'0'))
			})
			list[n] += `select * from (` + part + `) s` + strconv.Itoa(i)
		}
		list[n] += ` limit $` + strconv.Itoa(5*n+1)
	}
	return list
}()

func (s *Store) walkArgs(way []stretch, limit int) (args []any) {
	for _, w := range way {
		args = append(args, w.kind, w.from.shard, w.from.webhook, w.to.shard, w.to.webhook)
	}
	return append(args, limit)
}

// lookAtCapped finds the lanes of the webhooks that the claim has caps for, in turn.
func (s *Store) lookAtCapped(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, sight *sight, claim *webhooks.Claim) error {
	var ids []string
	for id, n := range claim.Caps {
		if n > 0 {
			ids = append(ids, id)
		}
	}
	for kind := int16(live); kind <= recovered && len(ids) > 0; kind++ {
		batch.Queue(s.sql(named), kind, ids).Query(func(rows pgx.Rows) error {
			seen, err := pgx.CollectRows(rows, scanLane)
			for _, l := range seen {
				if l.cap = claim.Caps[l.id]; l.held < l.cap && !sight.crowded[l.account] {
					sight.lanes = append(sight.lanes, l)
				}
			}
			return err
		})
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	s.turns.mu.Lock()
	from := s.turns.capped
	s.turns.mu.Unlock()
	slices.SortFunc(sight.lanes, func(a, b lane) int {
		x, y := a.spot(), b.spot()
		switch first, second := x.after(from), y.after(from); {
		case x == y:
			return int(a.kind - b.kind)
		case first && !second, first == second && y.after(x):
			return -1
		}
		return 1
	})
	return nil
}

func scanLane(row pgx.CollectableRow) (l lane, err error) {
	return l, row.Scan(&l.webhook, &l.shard, &l.kind, &l.id, &l.account, &l.held)
}

// shards returns those that a claim has to do with.
func (sight *sight) shards() []int16 {
	list := sight.expired
	for _, l := range sight.lanes {
		if !slices.Contains(list, l.shard) {
			list = append(list, l.shard)
		}
	}
	return list
}
