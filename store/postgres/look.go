package postgres

import (
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// nextDue tells in how many seconds something is due, or may be probed, that is not
// yet; null if nothing is.
const nextDue = `
	select extract(epoch from least(
		(select due from storageapi.queue where parked order by due limit 1),
		(select probe_at from storageapi.webhooks where probe_at > clock_timestamp() order by probe_at limit 1)) - clock_timestamp())::float8`

// expired tells of the accounts of which leases have run out, and in how many seconds the
// next lease does.
const expired = `
	select array(select distinct account from (select account from storageapi.leases where until <= statement_timestamp() order by until limit 1000) l),
		extract(epoch from (select until from storageapi.leases where until > statement_timestamp() order by until limit 1) - clock_timestamp())::float8`

// A sight is what a claim sees before it locks anything.
type sight struct {
	promoted int64           // made ready
	next     *float64        // seconds until something is due that is not; nil: nothing is
	expired  []string        // accounts of which leases have run out
	probed   map[string]bool // webhooks that are to be probed
	unproven int             // tasks that may be of unproven webhooks
	capOf    map[string]int  // of unproven webhooks of which there is a lane
	lanes    []lane          // to claim from, in turn
	moves    []lane          // to put aside, or if that was done to take back
	rest     bool            // there may be lanes that were not looked at
}

// look makes ready what is due, and looks for lanes to claim from: in one round trip,
// unless most that have something ready are not for this claim. If it is to be brief
// it looks for lanes alone.
func (s *Store) look(ctx context.Context, conn *pgxpool.Conn, claim *webhooks.Claim, brief bool) (*sight, error) {
	sight := &sight{probed: make(map[string]bool), unproven: claim.Limit - claim.ProvenOnly}
	batch := &pgx.Batch{}
	batch.Queue(inClaim)
	if bases, ns := s.lost.get(); len(bases) > 0 {
		batch.Queue(s.sql(release), bases, ns)
	}
	if !brief {
		batch.Queue(s.sql(promote), promoteStep).Exec(func(done pgconn.CommandTag) error {
			sight.promoted = done.RowsAffected()
			return nil
		})
		batch.Queue(s.sql(nextDue)).QueryRow(func(row pgx.Row) error { return row.Scan(&sight.next) })
		if s.expiry.begins() {
			batch.Queue(s.sql(expired)).QueryRow(func(row pgx.Row) error {
				var next *float64
				err := row.Scan(&sight.expired, &next)
				if err == nil {
					s.expiry.ended(len(sight.expired) > 0, next)
				}
				return err
			})
		}
	}
	if claim.Probes > 0 {
		batch.Queue(s.sql(takeProbes), min(claim.Probes, claim.Limit), probeLife.Microseconds()).Query(sight.addProbes)
	}
	if len(claim.Webhooks) > 0 {
		return sight, s.lookAtNamed(ctx, conn, batch, sight, claim)
	}
	return sight, s.lookAround(ctx, conn, batch, sight, claim, brief)
}

// A stretch is a part of the way around the lanes of a kind: from after one spot to
// another.
type stretch struct {
	kind     int16
	from, to spot
}

func columnsOf(way []stretch) []any {
	var kinds, fromShards, toShards []int16
	var fromWebhooks, toWebhooks []int64
	for _, w := range way {
		kinds = append(kinds, w.kind)
		fromShards, fromWebhooks = append(fromShards, w.from.shard), append(fromWebhooks, w.from.webhook)
		toShards, toWebhooks = append(toShards, w.to.shard), append(toWebhooks, w.to.webhook)
	}
	return []any{kinds, fromShards, fromWebhooks, toShards, toWebhooks}
}

// lookAround finds lanes in turn, the live ones first.
func (s *Store) lookAround(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, sight *sight, claim *webhooks.Claim, brief bool) error {
	var way []stretch
	for kind := int16(live); kind <= recovered; kind++ {
		at := s.turns.of(kind)
		way = append(way, stretch{kind, at, last}, stretch{kind, spot{-1, 0}, at})
	}
	if !brief {
		s.lookBack(batch, sight, claim)
	}
	for looks := 1; ; looks++ {
		var seen []lane
		batch.Queue(s.sql(walk), append(columnsOf(way), claim.Limit, true, claim.PerAccount)...).Query(func(rows pgx.Rows) (err error) {
			seen, err = pgx.CollectRows(rows, scanLane)
			return err
		})
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		for _, l := range seen {
			if l.awake {
				sight.add(l, claim)
			} else {
				sight.moves = append(sight.moves, l)
			}
		}
		if len(seen) < claim.Limit {
			return nil // that was the whole way
		}
		end := seen[len(seen)-1]
		for way[0].kind != end.kind&kindOf || end.spot().after(way[0].to) || !end.spot().after(way[0].from) {
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

// lookBack finds lanes that were put aside and whose webhooks are awake.
func (s *Store) lookBack(batch *pgx.Batch, sight *sight, claim *webhooks.Claim) {
	add := func(rows pgx.Rows) error {
		seen, err := pgx.CollectRows(rows, scanLane)
		for _, l := range seen {
			if l.kind&aside != 0 {
				sight.moves = append(sight.moves, l)
				sight.add(l, claim)
			}
		}
		return err
	}
	switch awoken, all := s.turns.looksBack(); {
	case all:
		back := []stretch{{live + aside, spot{-1, 0}, last}, {recovered + aside, spot{-1, 0}, last}}
		batch.Queue(s.sql(walk), append(columnsOf(back), promoteStep, false, claim.PerAccount)...).Query(add)
	case len(awoken) > 0:
		batch.Queue(s.sql(named), awoken, claim.PerAccount).Query(add)
	}
}

// add adds a lane to claim from, if the claim allows. Those of unproven webhooks may
// have no more than the claim has for all of them.
func (sight *sight) add(l lane, claim *webhooks.Claim) {
	if slices.ContainsFunc(sight.lanes, func(other lane) bool { return other.webhook == l.webhook && other.kind == l.kind }) {
		return
	}
	if l.cap = capOf(&l, claim); l.held >= l.cap || l.crowded(claim) || sight.probed[l.id] {
		return
	}
	if !l.proven && claim.ProvenOnly > 0 {
		if l.cap = sight.bound(l); l.cap == 0 {
			return
		}
	}
	sight.lanes = append(sight.lanes, l)
}

// bound returns the cap of a lane of an unproven webhook.
func (sight *sight) bound(l lane) int {
	most, known := sight.capOf[l.id]
	switch {
	case known:
		return most
	case sight.unproven <= 0:
		return 0
	}
	n := min(l.cap-l.held, sight.unproven)
	sight.unproven -= n
	if sight.capOf == nil {
		sight.capOf = make(map[string]int)
	}
	sight.capOf[l.id] = l.held + n
	return l.held + n
}

// capOf returns how many leases the lane's webhook may have.
func capOf(l *lane, claim *webhooks.Claim) int {
	if claim.Cap == nil {
		return math.MaxInt32
	}
	return min(claim.Cap(l.id, l.proven), math.MaxInt32)
}

// lookAtNamed finds the lanes of the webhooks that the claim names, in turn.
func (s *Store) lookAtNamed(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, sight *sight, claim *webhooks.Claim) error {
	batch.Queue(s.sql(named), claim.Webhooks, claim.PerAccount).Query(func(rows pgx.Rows) error {
		seen, err := pgx.CollectRows(rows, scanLane)
		for _, l := range seen {
			if l.cap = capOf(&l, claim); l.held < l.cap && !l.crowded(claim) && !sight.probed[l.id] {
				sight.lanes = append(sight.lanes, l)
			}
		}
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	s.turns.mu.Lock()
	from := s.turns.capped
	s.turns.mu.Unlock()
	slices.SortFunc(sight.lanes, func(a, b lane) int {
		if a.probe != b.probe {
			if a.probe {
				return -1
			}
			return 1
		}
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
	return l, row.Scan(&l.webhook, &l.shard, &l.kind, &l.id, &l.account, &l.held, &l.awake, &l.proven, &l.accountHeld)
}

// shards returns those that a claim has to do with.
func (sight *sight) shards() []int16 {
	var list []int16
	for _, account := range sight.expired {
		if shard := shardOf(account); !slices.Contains(list, shard) {
			list = append(list, shard)
		}
	}
	for _, lanes := range [][]lane{sight.lanes, sight.moves} {
		for _, l := range lanes {
			if !slices.Contains(list, l.shard) {
				list = append(list, l.shard)
			}
		}
	}
	return list
}
