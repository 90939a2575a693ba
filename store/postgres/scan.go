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

// nextDue returns the seconds until the next delivery is due or the next webhook may be
// probed; null if there is none.
const nextDue = `
	select extract(epoch from least(
		(select due from storageapi.queue where parked order by due limit 1),
		(select probe_at from storageapi.webhooks where probe_at > clock_timestamp() order by probe_at limit 1)) - clock_timestamp())::float8`

// expired returns the accounts that have expired leases, and the seconds until the next
// lease expires.
const expired = `
	select array(select distinct account from (select account from storageapi.leases where until <= statement_timestamp() order by until limit 1000) l),
		extract(epoch from (select until from storageapi.leases where until > statement_timestamp() order by until limit 1) - clock_timestamp())::float8`

// candidates are what a claim finds before it locks anything.
type candidates struct {
	promoted int64           // deliveries made ready
	next     *float64        // seconds until the next is due; nil: none
	expired  []string        // accounts with expired leases
	probed   map[string]bool // webhooks to probe
	unproven int             // tasks that may be of unproven webhooks
	capOf    map[string]int  // of unproven webhooks with a lane
	lanes    []lane          // to claim from, in turn
	moves    []lane          // to suspend, or to resume if they are suspended
	rest     bool            // there may be lanes that were not scanned
}

// scan makes due deliveries ready and finds lanes to claim from. It takes one round trip,
// unless most lanes with ready deliveries are not for this claim. With lanesOnly it only
// finds lanes.
func (s *Store) scan(ctx context.Context, conn *pgxpool.Conn, claim *webhooks.Claim, lanesOnly bool) (*candidates, error) {
	candidates := &candidates{probed: make(map[string]bool), unproven: claim.Limit - claim.ProvenOnly}
	batch := &pgx.Batch{}
	batch.Queue(inClaim)
	if bases, ns := s.lost.get(); len(bases) > 0 {
		batch.Queue(s.sql(release), bases, ns)
	}
	if !lanesOnly {
		batch.Queue(s.sql(promote), promoteStep).Exec(func(done pgconn.CommandTag) error {
			candidates.promoted = done.RowsAffected()
			return nil
		})
		batch.Queue(s.sql(nextDue)).QueryRow(func(row pgx.Row) error { return row.Scan(&candidates.next) })
		if s.expiry.begins() {
			batch.Queue(s.sql(expired)).QueryRow(func(row pgx.Row) error {
				var next *float64
				err := row.Scan(&candidates.expired, &next)
				if err == nil {
					s.expiry.ended(len(candidates.expired) > 0, next)
				}
				return err
			})
		}
	}
	if claim.Probes > 0 {
		batch.Queue(s.sql(takeProbes), min(claim.Probes, claim.Limit), probeLife.Microseconds()).Query(candidates.addProbes)
	}
	if len(claim.Webhooks) > 0 {
		return candidates, s.scanNamed(ctx, conn, batch, candidates, claim)
	}
	return candidates, s.scanInTurn(ctx, conn, batch, candidates, claim, lanesOnly)
}

// A keyRange is a range of lanes of a kind, from after one position up to another.
type keyRange struct {
	kind     int16
	from, to position
}

func columnsOf(ranges []keyRange) []any {
	var kinds, fromShards, toShards []int16
	var fromWebhooks, toWebhooks []int64
	for _, w := range ranges {
		kinds = append(kinds, w.kind)
		fromShards, fromWebhooks = append(fromShards, w.from.shard), append(fromWebhooks, w.from.webhook)
		toShards, toWebhooks = append(toShards, w.to.shard), append(toWebhooks, w.to.webhook)
	}
	return []any{kinds, fromShards, fromWebhooks, toShards, toWebhooks}
}

// scanInTurn finds lanes by round robin, the live ones first.
func (s *Store) scanInTurn(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, candidates *candidates, claim *webhooks.Claim, lanesOnly bool) error {
	var ranges []keyRange
	for kind := int16(live); kind <= recovered; kind++ {
		at := s.turns.of(kind)
		ranges = append(ranges, keyRange{kind, at, last}, keyRange{kind, position{-1, 0}, at})
	}
	if !lanesOnly {
		s.scanSuspended(batch, candidates, claim)
	}
	zeroCaps := make(map[string]bool)
	defer func() { s.turns.noteCaps(claim.PerAccount, zeroCaps) }()
	for scans := 1; ; scans++ {
		var seen []lane
		batch.Queue(s.sql(walk), append(columnsOf(ranges), claim.Limit, true, claim.PerAccount)...).Query(func(rows pgx.Rows) (err error) {
			seen, err = pgx.CollectRows(rows, scanLane)
			return err
		})
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		for _, l := range seen {
			if l.awake {
				if capOf(&l, claim) == 0 {
					zeroCaps[l.id] = true
				}
				candidates.add(l, claim)
			} else {
				candidates.moves = append(candidates.moves, l)
			}
		}
		if len(seen) < claim.Limit {
			return nil // all ranges were scanned
		}
		end := seen[len(seen)-1]
		for ranges[0].kind != end.kind&kindOf || end.position().after(ranges[0].to) || !end.position().after(ranges[0].from) {
			ranges = ranges[1:]
		}
		ranges[0].from = end.position()
		if candidates.rest = len(candidates.lanes) >= claim.Limit || scans == maxScans; candidates.rest {
			if len(candidates.lanes) == 0 {
				s.turns.pass(end) // continue from here
			}
			return nil
		}
		batch = &pgx.Batch{}
		batch.Queue(indexed)
	}
}

// scanSuspended finds suspended lanes whose webhooks may have attempts again.
func (s *Store) scanSuspended(batch *pgx.Batch, candidates *candidates, claim *webhooks.Claim) {
	add := func(rows pgx.Rows) error {
		seen, err := pgx.CollectRows(rows, scanLane)
		for _, l := range seen {
			if l.kind&suspended != 0 {
				candidates.moves = append(candidates.moves, l)
				candidates.add(l, claim)
			}
		}
		return err
	}
	switch resumed, all := s.turns.scansSuspended(); {
	case all:
		back := []keyRange{{live + suspended, position{-1, 0}, last}, {recovered + suspended, position{-1, 0}, last}}
		batch.Queue(s.sql(walk), append(columnsOf(back), promoteStep, false, claim.PerAccount)...).Query(add)
	case len(resumed) > 0:
		batch.Queue(s.sql(named), resumed, claim.PerAccount).Query(add)
	}
}

// add adds a lane to claim from, if the claim allows it. All lanes of unproven webhooks
// together get no more than the claim has for them.
func (candidates *candidates) add(l lane, claim *webhooks.Claim) {
	if slices.ContainsFunc(candidates.lanes, func(other lane) bool { return other.webhook == l.webhook && other.kind == l.kind }) {
		return
	}
	if l.cap = capOf(&l, claim); l.held >= l.cap || l.crowded(claim) || candidates.probed[l.id] {
		return
	}
	if !l.proven && claim.ProvenOnly > 0 {
		if l.cap = candidates.bound(l); l.cap == 0 {
			return
		}
	}
	candidates.lanes = append(candidates.lanes, l)
}

// bound returns the cap of a lane of an unproven webhook.
func (candidates *candidates) bound(l lane) int {
	most, known := candidates.capOf[l.id]
	switch {
	case known:
		return most
	case candidates.unproven <= 0:
		return 0
	}
	n := min(l.cap-l.held, candidates.unproven)
	candidates.unproven -= n
	if candidates.capOf == nil {
		candidates.capOf = make(map[string]int)
	}
	candidates.capOf[l.id] = l.held + n
	return l.held + n
}

// capOf returns how many leases the lane's webhook may have.
func capOf(l *lane, claim *webhooks.Claim) int {
	if claim.Cap == nil {
		return math.MaxInt32
	}
	return min(claim.Cap(l.id, l.proven), math.MaxInt32)
}

// scanNamed finds the lanes of the webhooks that the claim names, in turn.
func (s *Store) scanNamed(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, candidates *candidates, claim *webhooks.Claim) error {
	batch.Queue(s.sql(named), claim.Webhooks, claim.PerAccount).Query(func(rows pgx.Rows) error {
		seen, err := pgx.CollectRows(rows, scanLane)
		for _, l := range seen {
			if l.cap = capOf(&l, claim); l.held < l.cap && !l.crowded(claim) && !candidates.probed[l.id] {
				candidates.lanes = append(candidates.lanes, l)
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
	slices.SortFunc(candidates.lanes, func(a, b lane) int {
		if a.probe != b.probe {
			if a.probe {
				return -1
			}
			return 1
		}
		x, y := a.position(), b.position()
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

// shards returns the shards of all candidates.
func (candidates *candidates) shards() []int16 {
	var list []int16
	for _, account := range candidates.expired {
		if shard := shardOf(account); !slices.Contains(list, shard) {
			list = append(list, shard)
		}
	}
	for _, lanes := range [][]lane{candidates.lanes, candidates.moves} {
		for _, l := range lanes {
			if !slices.Contains(list, l.shard) {
				list = append(list, l.shard)
			}
		}
	}
	return list
}
