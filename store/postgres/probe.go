package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

// probeLife is how long it is heeded that somebody asked for an attempt: no webhook
// rests for longer.
const probeLife = 75 * time.Second

// askProbe has a claim lease one of the webhook $1: the next one, but a second after
// the last that was so.
const askProbe = `
	update storageapi.webhooks set probe_at = greatest(clock_timestamp(), probed_at + interval '1 second') where no = $1`

// takeProbes takes up to $1 webhooks with something ready for which that was asked no
// longer than $2 ago, and returns their lanes. Who has taken one is the only one to
// claim for it, and must give it back if that comes to nothing.
const takeProbes = `
	with wanted as (
		select no from storageapi.webhooks w
		where probe_at <= clock_timestamp() and probe_at > clock_timestamp() - $2 * interval '1 microsecond' and active and exists (
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
		s.turns.awoke(webhookID)
		s.waker.tell()
	}
	return err
}

// addProbes reads the rows of takeProbes: lanes to claim one delivery from, before all
// others.
func (sight *sight) addProbes(rows pgx.Rows) error {
	seen, err := pgx.CollectRows(rows, scanLane)
	for _, l := range seen {
		l.cap, l.probe = l.held+1, true
		sight.probed[l.id] = true
		sight.lanes = append(sight.lanes, l)
	}
	return err
}

// returnProbes gives back what was taken and came to nothing, if it can: what is lost
// ends with the webhook's rest.
func (s *Store) returnProbes(ctx context.Context, conn *pgxpool.Conn, sight *sight, tasks []webhooks.Task) {
	if len(sight.probed) == 0 {
		return
	}
	for _, task := range tasks {
		if task.Probe {
			delete(sight.probed, task.Webhook.ID)
		}
	}
	var nos []int64
	for _, l := range sight.lanes {
		if l.probe && sight.probed[l.id] {
			nos = append(nos, l.webhook)
		}
	}
	if len(nos) > 0 {
		_, _ = conn.Exec(ctx, s.sql(returnProbes), nos)
	}
}
