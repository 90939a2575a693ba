package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// The states of a row of attempts.
const (
	stateRetried = iota
	stateDelivered
	stateDead
	stateSkipped
)

// alive locks the row of the node $1 until the transaction ends: none of its shards is another's
// before.
const alive = `select node from storageapi.nodes where node = $1 for key share`

var (
	settle           = queryWithout("settle", "health")
	settleWithHealth = query("settle")
	forgetAttempts   = query("forget_attempts")
)

// SettleDeliveries implements [webhooks.Store].
func (s *Store) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) (stale []int, err error) {
	b := settlementBatch{node: s.ownership.incarnation()}
	stale = b.fill(&s.owned, settlements)
	over := false
	step := func(ctx context.Context, conn *pgxpool.Conn) error {
		if len(b.rows) == 0 {
			return nil
		}
		s.ownership.fence.RLock()
		defer s.ownership.fence.RUnlock()
		sql, args, err := b.statement()
		if err != nil {
			return err
		}
		var current []int
		batch := &pgx.Batch{}
		batch.Queue(indexed)
		batch.Queue(s.sql(alive), b.node).Exec(func(done pgconn.CommandTag) error {
			over = done.RowsAffected() == 0
			return nil
		})
		batch.Queue(s.sql(sql), args...).Query(func(rows pgx.Rows) (err error) {
			current, err = pgx.CollectRows(rows, pgx.RowTo[int])
			return err
		})
		for _, r := range b.rows {
			if r.Attempt.Number > webhooks.MaxAttempts {
				batch.Queue(s.sql(forgetAttempts), r.webhook, r.event, r.Attempt.Number, webhooks.MaxAttempts)
			}
		}
		err = conn.SendBatch(ctx, batch).Close()
		if err == nil {
			for _, i := range current {
				b.rows[i].current = true
			}
		}
		return err
	}
	timed, cancel := s.ownership.shortly(ctx, workSettle)
	defer cancel()
	began := time.Now()
	err = s.write(timed, step)
	if len(b.rows) > 0 {
		s.ownership.worked(workSettle, began, err)
	}
	if err != nil {
		for _, r := range b.held {
			s.owned.queue.Unhold(r.Task.Token)
		}
		return nil, err
	}
	if over {
		s.ownership.lost(b.node)
	}
	for _, r := range b.rows {
		if !r.current {
			stale = append(stale, r.place)
		}
	}
	s.letGo(&b)
	slices.Sort(stale)
	return stale, nil
}

// letGo ends the leases of settlements that are done. What was not current waits again: the next
// claim reads what has become of it.
func (s *Store) letGo(b *settlementBatch) {
	now := time.Now()
	if _, err := s.learn(context.Background(), b.concerned); err != nil {
		s.owned.look.wanted.Store(true) // the next claim reads them
	}
	q := &s.owned.queue
	for _, r := range b.held {
		s.owned.endLease(r.deliveryPair, func() {
			switch token := r.Task.Token; {
			case r.Outcome == webhooks.Release && r.RetryAfter > 0:
				q.Postpone(token, now.Add(r.RetryAfter))
			case r.Outcome == webhooks.Release, !r.current:
				q.Release(token)
			case r.Outcome == webhooks.Retry:
				q.Retry(token, now.Add(r.RetryAfter), r.Attempt.Number, r.Asked)
			default:
				q.Done(token)
			}
		})
		if r.event < s.owned.look.past.Load() { // it ends with the next look
			s.owned.look.again.Store(true)
			s.owned.look.wanted.Store(true)
		}
	}
}

// A settlementBatch is settlements of a call.
type settlementBatch struct {
	node      int64
	held      []*heldSettlement // those whose leases are current
	rows      []*heldSettlement // of them, those that the database is told of
	notices   []noticeRow       // of these
	concerned []int64           // the webhooks that they say something about
}

// A heldSettlement is a settlement whose lease is kept from running out.
type heldSettlement struct {
	*webhooks.Settlement
	deliveryPair
	place   int // among the settlements of the call
	shard   int16
	matters bool // something may change about its webhook
	current bool // it is done
}

// fill adds the settlements whose leases are current, which it keeps from running out, and
// returns the others.
func (b *settlementBatch) fill(o *ownedShards, settlements []webhooks.Settlement) (stale []int) {
	told := make(map[string]bool)
	for i := range settlements {
		if s := &settlements[i]; s.Fails() || s.Rest > 0 || s.Deactivate != "" {
			told[s.Task.Webhook.ID] = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range settlements {
		s := &settlements[i]
		id, seq, ok := o.queue.Hold(s.Task.Token)
		if !ok {
			if !s.OnlyReleases() {
				stale = append(stale, i)
			}
			continue
		}
		w := o.byID[id] // there is one as long as there is a lease
		r := &heldSettlement{Settlement: s, deliveryPair: deliveryPair{w.no, int64(seq)}, place: i, shard: w.shard, matters: told[id] || !w.healthy}
		b.held = append(b.held, r)
		if r.matters && !slices.Contains(b.concerned, w.no) {
			b.concerned = append(b.concerned, w.no)
		}
		if !s.OnlyReleases() {
			b.rows = append(b.rows, r)
			b.tell(s.Off, true)
			b.tell(s.Recovered, false)
		}
	}
	return stale
}

// tell adds a notice of the settlement that was added last, if there is one.
func (b *settlementBatch) tell(n *notices.Notice, off bool) {
	if n != nil && !n.IsZero() {
		row := rowOfNotice(n)
		row.Place, row.Off = len(b.rows), off
		b.notices = append(b.notices, row)
	}
}

// statement returns the statement that settles, and its arguments.
func (b *settlementBatch) statement() (sql string, args []any, err error) {
	type row = *heldSettlement
	args = []any{
		column(b.rows, func(r row) int64 { return r.webhook }),
		column(b.rows, func(r row) int64 { return r.event }),
		column(b.rows, func(r row) int16 { return r.shard }),
		column(b.rows, func(r row) int16 { return int16(r.Outcome) }),
		column(b.rows, func(r row) int { return r.Attempt.Number }),
		column(b.rows, func(r row) *time.Time { return stored(r.Attempt.StartedAt) }),
		column(b.rows, func(r row) int64 { return r.Attempt.Duration.Microseconds() }),
		column(b.rows, func(r row) int { return r.Attempt.Status }),
		column(b.rows, func(r row) string { return string(r.Attempt.Class) }),
		column(b.rows, func(r row) string { return r.Attempt.Error }),
		column(b.rows, func(r row) string { return r.Attempt.Response }),
		column(b.rows, func(r row) int64 { return r.RetryAfter.Microseconds() }),
		b.node,
	}
	if len(b.concerned)+len(b.notices) == 0 { // most say nothing about their webhooks
		return settle, args, nil
	}
	list, err := listOf(b.notices...)
	return settleWithHealth, append(args,
		column(b.rows, func(r row) string { return string(r.Deactivate) }),
		column(b.rows, func(r row) string { return r.Task.Webhook.URL }),
		column(b.rows, row.Fails),
		column(b.rows, func(r row) int64 { return r.Rest.Microseconds() }),
		column(b.rows, func(r row) bool { return r.matters }),
		column(b.rows, func(r row) string {
			if r.Fails() {
				return r.Task.Event.ID
			}
			return ""
		}),
		list,
	), err
}
