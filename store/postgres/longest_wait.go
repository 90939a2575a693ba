package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxLooked is how many lanes LongestWait looks at, twice.
const maxLooked = 8

// longestWaits returns the proven webhooks that are awake and hold no lease, with the seconds
// for which each has waited: since the first of its lane was due, or since its last attempt
// ended. It goes from lane to lane, $3 lanes at most from the position ($1, $2) on and as
// many from the first on. $4 is how many leases an account may have, or 0.
var longestWaits = `
	select w.id, extract(epoch from clock_timestamp() - greatest(l.due, a.ended))::float8
	from (
		select g.kind::smallint as kind, p.shard, p.webhook
		from ` + generations + ` cross join (values ($1::smallint, $2::bigint), (-1::smallint, 0::bigint)) p (shard, webhook)) s
	cross join lateral (
		with recursive lane as (
			(select q.shard, q.webhook, q.due, 1 as number from storageapi.queue q
				where not q.parked and q.kind = s.kind and (q.shard, q.webhook) > (s.shard, s.webhook)
				order by q.shard, q.webhook, q.due, q.event limit 1)
			union all
			select n.shard, n.webhook, n.due, lane.number + 1 from lane cross join lateral (
				select q.shard, q.webhook, q.due from storageapi.queue q
				where not q.parked and q.kind = s.kind and (q.shard, q.webhook) > (lane.shard, lane.webhook)
				order by q.shard, q.webhook, q.due, q.event limit 1) n
			where lane.number < $3
		) select * from lane) l
	cross join lateral (
		select id, account from storageapi.webhooks
		where no = l.webhook and ` + awake + ` and proven_at is not null and failing_since is null limit 1) w
	left join lateral (
		select started_at + took * interval '1 microsecond' as ended from storageapi.attempts where webhook = l.webhook
		order by event desc, number desc limit 1) a on a.ended < clock_timestamp() + interval '1 hour'
	where not exists (select from storageapi.leases where account = w.account and webhook = l.webhook and until > clock_timestamp())
		and ($4 = 0 or $4 > (select count(*) from (
			select from storageapi.leases where account = w.account and until > clock_timestamp() limit $4::integer) of))`

// LongestWait implements [webhooks.Store]. It looks at the lanes whose turn on this node comes
// next.
func (s *Store) LongestWait(ctx context.Context) (longest time.Duration, err error) {
	at := s.turns.of(live)
	perAccount, capped := s.turns.lastCaps()
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := s.planned(conn).Query(ctx, s.sql(longestWaits), at.shard, at.webhook, maxLooked, perAccount)
		if err != nil {
			return err
		}
		var id string
		var seconds float64
		_, err = pgx.ForEachRow(rows, []any{&id, &seconds}, func() error {
			if !capped[id] {
				longest = max(longest, time.Duration(seconds*float64(time.Second)))
			}
			return nil
		})
		return err
	})
	return longest, err
}

// lastCaps returns what the last claim for all webhooks allowed an account, and the webhooks
// whose cap was 0 in it, among those that it has asked for.
func (t *turns) lastCaps() (perAccount int, capped map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.perAccount, t.zeroCaps
}

// noteCaps notes that for lastCaps.
func (t *turns) noteCaps(perAccount int, capped map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.perAccount, t.zeroCaps = perAccount, capped
}
