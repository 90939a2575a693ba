package postgres

import (
	"context"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

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
