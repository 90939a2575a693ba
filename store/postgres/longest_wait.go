package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxLooked is how many lanes LongestWait looks at.
const maxLooked = 32

// longestWaits returns the webhooks of the lanes that walk finds which are proven and hold no
// lease, with the seconds for which each has waited: since the first of its lane was due, or
// since its last attempt ended.
var longestWaits = `
	select l.id, extract(epoch from clock_timestamp() - greatest(q.due, a.ended))::float8
	from (` + walk + `) l (webhook, shard, kind, id, account, held, awake, proven, account_held)
	cross join lateral (
		select due from storageapi.queue where not parked and kind = l.kind and shard = l.shard and webhook = l.webhook
		order by due, event limit 1) q
	left join lateral (
		select started_at + took * interval '1 microsecond' as ended from storageapi.attempts where webhook = l.webhook
		order by event desc, number desc limit 1) a on a.ended < clock_timestamp() + interval '1 hour'
	where l.proven and l.held = 0 and ($8 = 0 or l.account_held < $8)`

// LongestWait implements [webhooks.Store]. It looks at the lanes whose turn on this node comes
// next.
func (s *Store) LongestWait(ctx context.Context) (longest time.Duration, err error) {
	at := s.turns.of(live)
	perAccount, capped := s.turns.lastCaps()
	args := append(columnsOf([]keyRange{{live, at, last}, {live, position{-1, 0}, at}}), maxLooked, false, perAccount)
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := s.planned(conn).Query(ctx, s.sql(longestWaits), args...)
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
