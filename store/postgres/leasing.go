package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// A leasing is a claim in progress, and its result.
type leasing struct {
	*Store
	claim webhooks.Claim
	tasks []webhooks.Task
	wait  time.Duration

	unproven, probes int // of the tasks

	// Of the current run:
	lanes   []lane
	base    int64 // before the first token
	locked  []int16
	clipped bool
	served  [2]*lane // the last of each kind
}

// run scans and claims once; with lanesOnly it scans nothing but lanes.
func (l *leasing) run(ctx context.Context, conn *pgxpool.Conn, lanesOnly bool) error {
	before := len(l.tasks)
	at := time.Now()
	candidates, err := l.scan(ctx, conn, &l.claim, lanesOnly)
	if err != nil {
		return err
	}
	l.renewal.scanned(time.Since(at))
	wanted := candidates.shards()
	l.lanes, l.locked, l.clipped, l.served = candidates.lanes, nil, false, [2]*lane{}
	if len(wanted) > 0 {
		if err := l.lease(ctx, conn, wanted, candidates); err != nil {
			_, _ = conn.Exec(ctx, `rollback`)
			l.tasks = l.tasks[:before]
			l.lost.add(l.base, l.claim.Limit)
			l.returnProbes(ctx, conn, candidates, nil)
			return err
		}
	}
	l.returnProbes(ctx, conn, candidates, l.tasks[before:])
	claimed := len(l.tasks) - before
	if before == 0 {
		// A second run does not count as a turn: lanes that could not be served now are
		// still next.
		l.turns.served(len(l.claim.Webhooks) > 0, l.served)
	}
	if len(l.claim.Webhooks) == 0 {
		l.turns.scanned(lanesOnly, claimed == l.claim.Limit)
	}
	l.wait = l.options.poll*3/4 + rand.N(l.options.poll/2+1)
	l.wait = l.expiry.within(l.wait, claimed > 0, l.claim.Lease)
	if candidates.next != nil {
		l.wait = min(l.wait, max(time.Duration(*candidates.next*float64(time.Second)), time.Millisecond))
	}
	switch {
	case claimed == l.claim.Limit || l.clipped || candidates.promoted == promoteStep || candidates.rest && claimed > 0:
		l.wait = 0
	case len(l.locked) < len(wanted):
		l.wait = min(l.wait, busyWait)
	case candidates.rest:
		l.wait = min(l.wait, restWait)
	}
	return nil
}

// remain reduces the claim to what the first run has left of it.
func (l *leasing) remain() {
	unproven := l.claim.Limit - l.claim.ProvenOnly - l.unproven
	l.claim.Limit -= len(l.tasks)
	l.claim.Probes = max(0, l.claim.Probes-l.probes)
	l.claim.ProvenOnly = max(0, l.claim.Limit-max(0, unproven))
}

// lease locks shards and leases ready deliveries of the lanes in the shards that it got,
// in one round trip. It reads the leased deliveries after the commit, when nothing is
// locked any more.
func (l *leasing) lease(ctx context.Context, conn *pgxpool.Conn, wanted []int16, candidates *candidates) error {
	l.base = rand.Int64() >> 1 // so that processes do not share tokens (fencing tokens)
	var nos, versions, firsts []int64
	var shards, kinds []int16
	var caps []int32
	var accounts []string
	first := make(map[string]int64)
	var expiredLeases int64
	for i := range l.lanes {
		lane := &l.lanes[i]
		lane.known = l.known.get(lane.webhook)
		nos, shards, kinds, caps = append(nos, lane.webhook), append(shards, lane.shard), append(kinds, lane.kind), append(caps, int32(lane.cap))
		accounts, versions = append(accounts, lane.account), append(versions, lane.known.version)
		if first[lane.account] == 0 {
			first[lane.account] = int64(i + 1)
		}
		firsts = append(firsts, first[lane.account])
	}
	batch := &pgx.Batch{}
	batch.Queue(`begin`)
	batch.Queue(inClaim)
	batch.Queue(l.sql(lock), wanted).QueryRow(func(row pgx.Row) error { return row.Scan(&l.locked, nil) })
	if len(candidates.expired) > 0 && len(l.claim.Finished) > 0 {
		var tokens []int64
		for _, token := range l.claim.Finished {
			tokens = append(tokens, int64(token))
		}
		batch.Queue(l.sql(prolong), tokens, l.claim.Lease.Microseconds())
	}
	if len(candidates.expired) > 0 {
		batch.Queue(l.sql(expire), candidates.expired).Exec(func(done pgconn.CommandTag) error {
			expiredLeases = done.RowsAffected()
			return nil
		})
	}
	batch.Queue(l.sql(lease), nos, shards, kinds, caps, accounts, firsts, l.claim.Limit, l.claim.PerAccount, maxBytes, l.base, l.claim.Lease.Microseconds()).
		QueryRow(func(row pgx.Row) error { return row.Scan(nil, &l.clipped) })
	if len(candidates.moves) > 0 {
		batch.Queue(l.sql(move), movesOf(candidates.moves)...)
	}
	batch.Queue(`commit`)
	batch.Queue(indexed)
	var leases []leaseRow
	batch.Queue(l.sql(leased), l.base, l.claim.Limit).Query(func(rows pgx.Rows) (err error) {
		leases, err = pgx.CollectRows(rows, scanLease)
		return err
	})
	batch.Queue(l.sql(changed), nos, versions).Query(l.addChanged)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	l.expiredLeases.Add(uint64(expiredLeases))
	l.add(leases)
	return nil
}

func movesOf(lanes []lane) []any {
	var nos []int64
	var shards, kinds []int16
	var accounts []string
	for _, l := range lanes {
		nos, shards, kinds, accounts = append(nos, l.webhook), append(shards, l.shard), append(kinds, l.kind), append(accounts, l.account)
	}
	return []any{nos, shards, kinds, accounts, promoteStep}
}
