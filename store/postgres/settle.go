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
	settle           = query("settle")
	settleWithHealth = query("settle_with_health")
	forgetAttempts   = query("forget_attempts")
)

// SettleDeliveries implements [webhooks.Store].
func (s *Store) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) (stale []int, err error) {
	b := settlementBatch{node: s.ownership.incarnation()}
	stale = b.fill(&s.owned, settlements)
	current := make([]bool, len(settlements))
	over := false
	step := func(ctx context.Context, conn *pgxpool.Conn) error {
		if len(b.places) == 0 {
			return nil
		}
		s.ownership.fence.RLock()
		defer s.ownership.fence.RUnlock()
		clear(current)
		sql, args, err := b.statement()
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue(indexed)
		batch.Queue(s.sql(alive), b.node).Exec(func(done pgconn.CommandTag) error {
			over = done.RowsAffected() == 0
			return nil
		})
		batch.Queue(s.sql(sql), args...).Query(func(rows pgx.Rows) error {
			var place int
			_, err := pgx.ForEachRow(rows, []any{&place}, func() error {
				current[b.places[place]] = true
				return nil
			})
			return err
		})
		for i, number := range b.numbers {
			if number > webhooks.MaxAttempts {
				batch.Queue(s.sql(forgetAttempts), b.webhooks[i], b.event[i], number, webhooks.MaxAttempts)
			}
		}
		return conn.SendBatch(ctx, batch).Close()
	}
	if err = s.write(ctx, step); code(err) == uniqueViolation { // a node of an older version has logged one of the attempts
		b.logged = true
		err = s.write(ctx, step)
	}
	if err != nil {
		for _, i := range b.held {
			s.owned.queue.Unhold(settlements[i].Task.Token)
		}
		return nil, err
	}
	if over {
		s.ownership.lost(b.node)
	}
	for _, i := range b.places {
		if !current[i] {
			stale = append(stale, i)
		}
	}
	s.letGo(&b, settlements, current)
	slices.Sort(stale)
	return stale, nil
}

// letGo ends the leases of settlements that are done. What was not current waits again: the next
// claim reads what has become of it.
func (s *Store) letGo(b *settlementBatch, settlements []webhooks.Settlement, current []bool) {
	if _, err := s.learn(context.Background(), b.concerned); err != nil {
		s.owned.look.wanted.Store(true) // the next claim reads them
	}
	q := &s.owned.queue
	now := time.Now()
	for at, i := range b.held {
		settlement := &settlements[i]
		s.owned.endLease(b.pairs[at], func() {
			switch token := settlement.Task.Token; {
			case settlement.Outcome == webhooks.Release, !current[i]:
				q.Release(token)
			case settlement.Outcome == webhooks.Retry:
				q.Retry(token, now.Add(settlement.RetryAfter), settlement.Attempt.Number)
			default:
				q.Done(token)
			}
		})
		if b.pairs[at].event < s.owned.look.past.Load() { // it ends with the next look
			s.owned.look.again.Store(true)
			s.owned.look.wanted.Store(true)
		}
	}
}

// A settlementBatch holds settlements by column: those that the database is told of.
type settlementBatch struct {
	node      int64
	logged    bool           // some of the attempts may be logged already
	held      []int          // the settlements whose leases are current
	pairs     []deliveryPair // of each
	concerned []int64        // the webhooks that they say something about

	places             []int
	webhooks, event    []int64
	shards             []int16
	outcomes           []int16
	numbers, statuses  []int
	started            []*time.Time
	took, retryAfter   []int64
	classes, errors    []string
	responses, reasons []string
	fails              []bool
	matters            []bool // something may change about its webhook
	urls               []string
	rests              []int64
	events             []string // that failed
	notices            []noticeRow
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
			stale = append(stale, i)
			continue
		}
		b.held = append(b.held, i)
		w := o.byID[id] // there is one as long as there is a lease
		b.pairs = append(b.pairs, deliveryPair{w.no, int64(seq)})
		matters := told[id] || !w.healthy
		if matters && !slices.Contains(b.concerned, w.no) {
			b.concerned = append(b.concerned, w.no)
		}
		if s.Outcome != webhooks.Release || s.Rest > 0 || s.Deactivate != "" {
			b.add(i, s, w, int64(seq), matters)
		}
	}
	return stale
}

func (b *settlementBatch) add(place int, s *webhooks.Settlement, w *ownedWebhook, event int64, matters bool) {
	b.places = append(b.places, place)
	b.webhooks = append(b.webhooks, w.no)
	b.event = append(b.event, event)
	b.shards = append(b.shards, w.shard)
	b.outcomes = append(b.outcomes, int16(s.Outcome))
	b.numbers = append(b.numbers, s.Attempt.Number)
	b.statuses = append(b.statuses, s.Attempt.Status)
	b.started = append(b.started, stored(s.Attempt.StartedAt))
	b.took = append(b.took, s.Attempt.Duration.Microseconds())
	b.retryAfter = append(b.retryAfter, s.RetryAfter.Microseconds())
	b.classes = append(b.classes, string(s.Attempt.Class))
	b.errors = append(b.errors, s.Attempt.Error)
	b.responses = append(b.responses, s.Attempt.Response)
	b.reasons = append(b.reasons, string(s.Deactivate))
	b.fails = append(b.fails, s.Fails())
	b.urls = append(b.urls, s.Task.Webhook.URL)
	b.rests = append(b.rests, s.Rest.Microseconds())
	b.matters = append(b.matters, matters)
	failed := ""
	if s.Fails() {
		failed = s.Task.Event.ID
	}
	b.events = append(b.events, failed)
	b.tell(s.Off, true)
	b.tell(s.Recovered, false)
}

// tell adds a notice of the settlement that was added last, if there is one.
func (b *settlementBatch) tell(n *notices.Notice, off bool) {
	if n != nil && !n.IsZero() {
		row := rowOfNotice(n)
		row.Place, row.Off = len(b.places), off
		b.notices = append(b.notices, row)
	}
}

// statement returns the statement that settles, and its arguments.
func (b *settlementBatch) statement() (sql string, args []any, err error) {
	args = []any{
		b.webhooks, b.event, b.shards, b.outcomes, b.numbers, b.started, b.took, b.statuses, b.classes, b.errors,
		b.responses, b.retryAfter, b.reasons, b.urls, b.fails, b.rests, b.matters, b.events, b.node,
	}
	if len(b.concerned)+len(b.notices) == 0 && !b.logged { // most say nothing about their webhooks
		return settle, args, nil
	}
	list, err := listOf(b.notices...)
	return settleWithHealth, append(args, list), err
}
