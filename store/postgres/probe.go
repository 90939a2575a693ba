package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// probeLife is how long a request for a probe is valid: no webhook rests for longer.
const probeLife = 75 * time.Second

// askProbe makes the next claim lease a delivery of the webhook $1 as a probe, at the
// earliest a second after the last one.
const askProbe = `
	update storageapi.webhooks set probe_at = greatest(clock_timestamp(), probed_at + interval '1 second') where no = $1`

// takeProbes takes up to $1 requests for probes, no older than $2, of webhooks with ready
// deliveries, and returns their lanes. Only the caller claims for them, and must return
// the requests that it does not use.
const takeProbes = `
	with wanted as (
		select no from storageapi.webhooks w
		where probe_at <= clock_timestamp() and probe_at > clock_timestamp() - $2 * interval '1 microsecond' and active and held is not true and exists (
			select from ` + kinds + ` s cross join lateral (
				select from storageapi.queue q where not q.parked and q.kind = s.kind and q.shard = w.shard and q.webhook = w.no and not exists (
					select from storageapi.leases where account = w.account and webhook = q.webhook and event = q.event and until > clock_timestamp())
				limit 1) r)
		order by probe_at limit $1 for no key update skip locked
	), taken as (
		update storageapi.webhooks set probe_at = null, probed_at = clock_timestamp() where no = any(array(select no from wanted))
		returning no as webhook, shard
	)
	select l.*, 0 from ` + kinds + ` s
	cross join lateral (
		with lane as (select webhook, shard from taken)` + laneFields + unleased + `
	) l`

// returnProbes undoes takeProbes.
const returnProbes = `
	update storageapi.webhooks set probe_at = clock_timestamp(), probed_at = null where no = any($1::bigint[]) and probe_at is null`

// Probe implements [webhooks.Store].
func (s *Store) Probe(ctx context.Context, account, webhookID string) error {
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var no int64
		err := tx.QueryRow(ctx, s.sql(`select no from storageapi.webhooks where account = $1 and id = $2`), account, webhookID).Scan(&no)
		if err != nil {
			return none(err)
		}
		_, err = tx.Exec(ctx, s.sql(askProbe), no)
		return err
	})
	if err == nil {
		s.turns.resume(webhookID)
		s.waker.notify()
	}
	return err
}

// addProbes reads the rows of takeProbes. One delivery is claimed from each of these
// lanes, before all others.
func (candidates *candidates) addProbes(rows pgx.Rows) error {
	seen, err := pgx.CollectRows(rows, scanLane)
	for _, l := range seen {
		l.cap, l.probe = l.held+1, true
		candidates.probed[l.id] = true
		candidates.lanes = append(candidates.lanes, l)
	}
	return err
}

// returnProbes returns the unused requests for probes, if it can. A lost request has no
// effect once the webhook's rest has ended.
func (s *Store) returnProbes(ctx context.Context, conn *pgxpool.Conn, candidates *candidates, tasks []webhooks.Task) {
	if len(candidates.probed) == 0 {
		return
	}
	for _, task := range tasks {
		if task.Probe {
			delete(candidates.probed, task.Webhook.ID)
		}
	}
	var nos []int64
	for _, l := range candidates.lanes {
		if l.probe && candidates.probed[l.id] {
			nos = append(nos, l.webhook)
		}
	}
	if len(nos) > 0 {
		_, _ = conn.Exec(ctx, s.sql(returnProbes), nos)
	}
}
