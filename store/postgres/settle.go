package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

// States of rows of attempt_log.
const (
	stateRetried = iota
	stateDelivered
	stateDead
	stateSkipped
)

// alive locks the row of the node $1 until the transaction ends, so that no other node can take the
// node's shards before then.
const alive = `select node from storageapi.nodes where node = $1 for key share`

var (
	settle         = query("settle")
	changeHealth   = query("change_health")
	forgetAttempts = query("forget_attempts")
)

// Settle implements [driver.Deliveries]. It reports webhooks with changed health through the change
// feed, like changes by other nodes, even if the outcome of the call is unknown.
func (s *Store) Settle(ctx context.Context, results []driver.AttemptResult, health []driver.HealthChange) (settled driver.Settled, err error) {
	b := resultBatch{node: s.node.Newest(), results: make([]resultRow, 0, len(results)), changes: health}
	b.fill(&s.owned, results)
	if err := b.list(); err != nil {
		return settled, err
	}
	timed, cancel := s.node.Shortly(ctx, shards.WorkSettle)
	defer cancel()
	began := time.Now()
	if err = s.write(timed, func(ctx context.Context, conn *pgxpool.Conn) error { return s.settle(ctx, conn, &b) }); len(results) > 0 {
		s.worked(shards.WorkSettle, began, err)
	}
	if err != nil {
		return settled, err
	}
	if b.over {
		s.node.Gone(b.node)
	}
	settled.Stale = others(len(results), b.counts)
	settled.Conflicts = others(len(health), b.changed)
	var accounts []string
	for _, place := range b.changed {
		accounts = append(accounts, health[place].Account)
	}
	s.changed(accounts...)
	return settled, nil
}

// settle runs the statements of a batch in one transaction.
func (s *Store) settle(ctx context.Context, conn *pgxpool.Conn, b *resultBatch) error {
	if len(b.results)+len(b.changes) == 0 {
		return nil
	}
	s.settling.RLock()
	defer s.settling.RUnlock()
	batch := s.batch(indexed)
	batch.Queue(s.sql(alive), b.node).Exec(func(done pgconn.CommandTag) error {
		b.over = done.RowsAffected() == 0
		return nil
	})
	var counts, changed []int
	places := func(list *[]int) func(pgx.Rows) error {
		return func(rows pgx.Rows) (err error) {
			*list, err = pgx.CollectRows(rows, pgx.RowTo[int])
			return err
		}
	}
	if len(b.results) > 0 {
		batch.Queue(s.sql(settle), b.args()...).Query(places(&counts))
	}
	for _, r := range b.results {
		if r.Attempt.Number > driver.MaxAttempts {
			batch.Queue(s.sql(forgetAttempts), r.no, r.Number, r.Attempt.Number, driver.MaxAttempts)
		}
	}
	if len(b.changes) > 0 {
		batch.Queue(s.sql(changeHealth), b.healthArgs()...).Query(places(&changed))
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	b.counts, b.changed = column(counts, func(i int) int { return b.results[i].place }), changed
	return nil
}

// others returns the numbers below n that are not in the list.
func others(n int, list []int) (rest []int) {
	in := make([]bool, n)
	for _, i := range list {
		in[i] = true
	}
	for i := range n {
		if !in[i] {
			rest = append(rest, i)
		}
	}
	return rest
}

// A resultBatch has the results and health changes of one call.
type resultBatch struct {
	node    int64
	results []resultRow // results of webhooks in memory; other webhooks belong to other nodes
	changes []driver.HealthChange
	entries string // audit entries, as JSON

	over    bool  // whether the node's term is over
	counts  []int // indexes of the results that count
	changed []int // indexes of the changes that were made
}

// A resultRow is a result with the number and the shard of its webhook.
type resultRow struct {
	*driver.AttemptResult
	place int
	no    int64
	shard int16
}

func (b *resultBatch) fill(o *ownedShards, results []driver.AttemptResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range results {
		if w := o.byID[results[i].WebhookID]; w != nil {
			b.results = append(b.results, resultRow{&results[i], i, w.no, w.shard})
		}
	}
}

// list encodes the audit entries.
func (b *resultBatch) list() (err error) {
	var rows []entryRow
	for i := range b.changes {
		for j := range b.changes[i].AuditEntries {
			if n := &b.changes[i].AuditEntries[j]; !n.IsZero() {
				row := rowOfAuditEntry(n)
				row.Place = i + 1
				rows = append(rows, row)
			}
		}
	}
	b.entries, err = listOf(rows...)
	return err
}

// args are the arguments of settle.
func (b *resultBatch) args() []any {
	return []any{
		column(b.results, func(r resultRow) int64 { return r.no }),
		column(b.results, func(r resultRow) int64 { return int64(r.Number) }),
		column(b.results, func(r resultRow) int16 { return r.shard }),
		column(b.results, func(r resultRow) int16 { return int16(r.Effect) }),
		column(b.results, func(r resultRow) int { return r.Attempt.Number }),
		column(b.results, func(r resultRow) *time.Time { return stored(r.Attempt.StartedAt) }),
		column(b.results, func(r resultRow) int64 { return r.Attempt.Duration.Microseconds() }),
		column(b.results, func(r resultRow) int { return r.Attempt.Status }),
		column(b.results, func(r resultRow) string { return string(r.Attempt.Class) }),
		column(b.results, func(r resultRow) string { return r.Attempt.Error }),
		column(b.results, func(r resultRow) string { return r.Attempt.Response }),
		column(b.results, func(r resultRow) int64 { return r.RetryAfter.Microseconds() }),
		b.node,
	}
}

// healthArgs are the arguments of changeHealth.
func (b *resultBatch) healthArgs() []any {
	type change = driver.HealthChange
	return []any{
		column(b.changes, func(c change) string { return c.Account }),
		column(b.changes, func(c change) string { return c.WebhookID }),
		column(b.changes, func(c change) int16 { return shardOf(c.Account) }),
		column(b.changes, func(c change) int64 { return int64(c.Version) }),
		column(b.changes, func(c change) bool { return c.Health.Active }),
		column(b.changes, func(c change) string { return string(c.Health.OffReason) }),
		column(b.changes, func(c change) *time.Time { return stored(c.Health.OffAt) }),
		column(b.changes, func(c change) *time.Time { return stored(c.Health.ProvenAt) }),
		column(b.changes, func(c change) *time.Time { return stored(c.Health.FailingSince) }),
		column(b.changes, func(c change) string { return c.Health.FailingEvent }),
		column(b.changes, func(c change) bool { return c.Health.FailedAgain }),
		column(b.changes, func(c change) *time.Time { return stored(c.Health.WarnedAt) }),
		b.node, b.entries, changeWebhook,
	}
}
