package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
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

// settle ends leases in one statement, and returns the places of those that were current
// by their tokens (fencing tokens). It waits for a lease that another transaction is
// ending, which is then not current. Leased rows of the queue are changed by no other
// transaction, so that they stay where they were found.
//
// The failing of a webhook is what its settlements would make of it one after the other.
// It is computed only for webhooks that were failing or that a settlement says something
// about, and not for the healthy ones, which most are. Leases, and after them webhooks that
// change, are locked in a fixed order.
const settle = `
	with current as materialized (
		select i.*, l.webhook, l.event, l.leased_at, q.queued_at, i.tells or w.ails as matters
		from (
			select * from unnest($1::bigint[], $2::smallint[], $3::integer[], $4::timestamptz[], $5::bigint[], $6::integer[], $7::text[], $8::text[],
				$9::text[], $10::bigint[], $11::text[], $12::text[], $13::boolean[], $14::bigint[], $15::boolean[], $17::text[])
			with ordinality as u (token, outcome, number, started_at, took, status, class, error, response, retry_after, off, url, fails, rest, tells, event_id, place)
			order by token) i
		cross join lateral (select ctid as leased_at, webhook, event from storageapi.leases where token = i.token limit 1 for update) l
		cross join lateral (select ctid as queued_at from storageapi.queue where webhook = l.webhook and event = l.event limit 1) q
		cross join lateral (
			select proven_at is null or failing_since is not null or warned_at is not null or rests_until is not null as ails
			from storageapi.webhooks where no = l.webhook limit 1) w
	), ended as (
		delete from storageapi.leases where ctid = any(array(select leased_at from current))
	), settled as (
		delete from storageapi.queue where ctid = any(array(select queued_at from current where outcome in (2, 3)))
	), retried as (
		update storageapi.queue q set parked = true, attempts = c.number, due = clock_timestamp() + c.retry_after * interval '1 microsecond'
		from current c where q.ctid = c.queued_at and c.outcome = 1
	), logged as (
		insert into storageapi.attempts (event, webhook, number, state, started_at, took, status, class, error, response)
		select event, webhook, number, outcome - 1, started_at, took, status, class, error, response from current where outcome > 0
	), forgotten as (
		delete from storageapi.attempts where ctid = any(array(
			select a.at from current c cross join lateral (
				select ctid as at from storageapi.attempts
				where event = c.event and webhook = c.webhook and number between 1 and c.number - $16) a
			where c.outcome > 0 and c.number > $16))
	), told as (
		select *, max(place) filter (where outcome = 2) over (partition by webhook, url) as proven from current where matters
	), health as materialized (
		select webhook, url, bool_or(proven is not null) as proven,
			(array_agg(started_at order by place) filter (where outcome = 2))[1] as delivered,
			(array_agg(started_at order by place) filter (where fails and (proven is null or place > proven)))[1] as failing,
			array_agg(event_id order by place) filter (where fails and (proven is null or place > proven)) as failed,
			(array_agg(rest order by place desc) filter (where rest > 0 and (proven is null or place > proven)))[1] as rest,
			(array_agg(off order by place desc) filter (where off <> ''))[1] as off,
			(array_agg(started_at order by place desc) filter (where off <> ''))[1] as off_at,
			min(place) filter (where off <> '') as off_place, min(place) filter (where outcome = 2) as delivered_place
		from told group by webhook, url order by webhook, url
	), changed as materialized (
		select w.*, h.* from health h
		cross join lateral (
			select no, active as was_active, warned_at is not null as was_warned from storageapi.webhooks where no = h.webhook and url = h.url and (
				h.failing is not null and (failing_since is null or h.proven or not failed_again and exists (select from unnest(h.failed) e where e <> failing_event)) or h.off is not null or h.rest is not null
				or h.proven and (proven_at is null or failing_since is not null or warned_at is not null or rests_until is not null))
			limit 1 for no key update) w
	), updated as (
		update storageapi.webhooks w set
			proven_at = coalesce(w.proven_at, c.delivered),
			failing_since = coalesce(case when not c.proven then w.failing_since end, c.failing),
			failing_event = coalesce(nullif(case when c.proven then '' else w.failing_event end, ''), c.failed[1], ''),
			failed_again = not c.proven and w.failed_again or exists (
				select from unnest(c.failed) e where e <> coalesce(nullif(case when c.proven then '' else w.failing_event end, ''), c.failed[1])),
			warned_at = case when not c.proven then w.warned_at end,
			rests_until = case when c.rest is null and not c.proven then w.rests_until
				else greatest(case when not c.proven then w.rests_until end, clock_timestamp() + c.rest * interval '1 microsecond') end,
			active = w.active and c.off is null, off_reason = coalesce(c.off, w.off_reason), off_at = coalesce(c.off_at, w.off_at), version = w.version + 1
		from changed c where w.no = any(array(select no from changed)) and w.no = c.no and w.url = c.url
	)`

// settled ends settle and returns which settlements were current.
const settled = `
	select place::integer - 1, matters and outcome = 2 from current`

// settledTelling ends settle, too, and stores the notices of settlements that turn a webhook
// off or end a failing that the host was warned of.
const settledTelling = `, noticed as (
		insert into storageapi.audit (` + noticeColumns + `)
		select ` + noticeColumns + ` from (
			select n.* from changed c join jsonb_to_recordset($18::text::jsonb) as ` + noticeRecords + `
				on n.off and n.place = c.off_place and c.was_active or not n.off and n.place = c.delivered_place and c.was_warned
			order by n.place, n.off) n
		on conflict (account, id) do nothing
	)` + settled

// SettleDeliveries implements [webhooks.Store].
func (s *Store) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) (stale []int, err error) {
	var b settlementBatch
	b.fill(settlements)
	current := make([]bool, len(settlements))
	var revived []string
	err = s.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if len(b.places) == 0 {
			return nil
		}
		clear(current)
		revived = nil
		batch := &pgx.Batch{}
		batch.Queue(indexed)
		sql, args := settle+settled, b.args()
		if len(b.notices) > 0 {
			list, err := listOf(b.notices...)
			if err != nil {
				return err
			}
			sql, args = settle+settledTelling, append(args, list)
		}
		batch.Queue(s.sql(sql), args...).Query(func(rows pgx.Rows) error {
			var place int
			var revives bool
			_, err := pgx.ForEachRow(rows, []any{&place, &revives}, func() error {
				current[b.places[place]] = true
				if revives {
					revived = append(revived, settlements[b.places[place]].Task.Webhook.ID)
				}
				return nil
			})
			return err
		})
		return conn.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, err
	}
	for _, id := range revived {
		s.turns.resume(id)
	}
	for i, is := range current {
		if !is {
			stale = append(stale, i)
		}
	}
	return stale, nil
}

// A settlementBatch holds settlements by column. Of several with one token it has the
// first, for that leaves the others stale.
type settlementBatch struct {
	places             []int
	tokens             []int64
	outcomes           []int16
	numbers, statuses  []int
	started            []*time.Time
	took, retryAfter   []int64
	classes, errors    []string
	responses, reasons []string
	fails              []bool
	tells              []bool // something about its webhook
	urls               []string
	rests              []int64
	events             []string // that failed
	notices            []noticeRow
}

func (b *settlementBatch) fill(settlements []webhooks.Settlement) {
	told := make(map[string]bool)
	for i := range settlements {
		if s := &settlements[i]; s.Fails() || s.Rest > 0 || s.Deactivate != "" {
			told[s.Task.Webhook.ID] = true
		}
	}
	known := make(map[uint64]bool, len(settlements))
	for i := range settlements {
		if s := &settlements[i]; !known[s.Task.Token] {
			known[s.Task.Token] = true
			b.add(i, s, told[s.Task.Webhook.ID])
		}
	}
}

func (b *settlementBatch) add(place int, s *webhooks.Settlement, tells bool) {
	token := int64(s.Task.Token)
	b.places = append(b.places, place)
	b.tokens = append(b.tokens, token)
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
	b.tells = append(b.tells, tells)
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

func (b *settlementBatch) args() []any {
	return []any{
		b.tokens, b.outcomes, b.numbers, b.started, b.took, b.statuses, b.classes, b.errors,
		b.responses, b.retryAfter, b.reasons, b.urls, b.fails, b.rests, b.tells, webhooks.MaxAttempts, b.events,
	}
}
