package postgres

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/webhooks"
)

// leased selects the leases that a claim has made: those of $2 tokens after $1.
const leased = `
	select l.webhook, q.kind, l.token, q.attempts, q.before, e.id, e.type, e.at, e.body, e.trace
	from storageapi.leases l
	cross join lateral (select kind, attempts, before from storageapi.queue where webhook = l.webhook and event = l.event limit 1) q
	left join lateral (select id, type, at, body, trace from storageapi.events where event = l.event limit 1) e on true
	where l.token > $1 and l.token <= $1 + $2
	order by l.token`

// changed selects the webhooks $1 whose versions differ from $2, which the claim knows.
const changed = `
	select w.no, w.version, ` + webhookColumns + `
	from unnest($1::bigint[], $2::bigint[]) as k (no, version)
	cross join lateral (select * from storageapi.webhooks where no = k.no and version <> k.version limit 1) w`

// A leaseRow is a row of leased.
type leaseRow struct {
	webhook          int64
	kind             int16
	token            int64
	attempts, before int
	id, eventType    *string
	trace            *string
	at               *time.Time
	body             []byte
}

func scanLease(row pgx.CollectableRow) (r leaseRow, err error) {
	return r, row.Scan(&r.webhook, &r.kind, &r.token, &r.attempts, &r.before, &r.id, &r.eventType, &r.at, &r.body, &r.trace)
}

// addChanged reads the rows of changed.
func (l *leasing) addChanged(rows pgx.Rows) error {
	news := make(map[int64]cachedWebhook)
	for rows.Next() {
		var no int64
		var r webhookRow
		var found cachedWebhook
		if err := rows.Scan(append([]any{&no, &found.version}, r.fields()...)...); err != nil {
			return err
		}
		webhook, err := l.webhook(&r)
		if err != nil {
			webhook.ID = r.id
		}
		found.webhook, found.err = &webhook, err
		l.known.put(no, found)
		news[no] = found
	}
	for i := range l.lanes {
		if found, ok := news[l.lanes[i].webhook]; ok {
			l.lanes[i].known = found
		}
	}
	return rows.Err()
}

// add makes tasks of leases, except those of webhooks that were deleted in the meantime.
func (l *leasing) add(leases []leaseRow) {
	type place struct {
		webhook int64
		kind    int16
	}
	lanes := make(map[place]*lane, len(l.lanes))
	for i := range l.lanes {
		lanes[place{l.lanes[i].webhook, l.lanes[i].kind & kindOf}] = &l.lanes[i] // the generation may have changed
	}
	for i := range leases {
		r := &leases[i]
		lane := lanes[place{r.webhook, r.kind & kindOf}]
		if lane == nil || lane.known.webhook == nil {
			continue
		}
		task := webhooks.Task{Webhook: lane.known.webhook, Attempt: r.attempts + 1, Before: r.before, Token: uint64(r.token), Probe: lane.probe, Err: lane.known.err}
		if r.id != nil {
			task.Event = webhooks.EncodedEvent{ID: *r.id, Account: lane.account, Type: webhooks.EventType(*r.eventType), Timestamp: utc(*r.at), Body: r.body}
			if r.trace != nil {
				task.Event.TraceContext = *r.trace
			}
		}
		if r.body == nil && task.Err == nil {
			task.Err = errNoPayload
		}
		l.tasks = append(l.tasks, task)
		if !lane.proven {
			l.unproven++
		}
		if lane.probe {
			l.probes++
		}
		if lane.kind&suspended == 0 && !lane.probe {
			l.served[lane.kind&recovered] = lane
		}
	}
}

// release ends the leases of $2 tokens after each of $1.
const release = `
	delete from storageapi.leases where ctid = any(array(
		select l.at from unnest($1::bigint[], $2::integer[]) as b (base, n)
		cross join lateral (select ctid as at from storageapi.leases where token > b.base and token <= b.base + b.n for update skip locked) l))`

// lostFor is how long the server may still execute a claim whose answer was lost.
const (
	lostFor = 15 * time.Second
	maxLost = 100 // claims
)

// lost are the tokens of claims that failed and may have leased deliveries nevertheless.
// Later claims end these leases.
type lost struct {
	mu    sync.Mutex
	bases []int64
	ns    []int32
	until []time.Time
}

func (l *lost) add(base int64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.until) == maxLost {
		l.drop(1)
	}
	l.bases, l.ns, l.until = append(l.bases, base), append(l.ns, int32(n)), append(l.until, time.Now().Add(lostFor))
}

// get returns the lost tokens, and forgets those older than lostFor.
func (l *lost) get() (bases []int64, ns []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bases, ns = l.bases, l.ns
	old := 0
	for now := time.Now(); old < len(l.until) && now.After(l.until[old]); old++ {
	}
	l.drop(old)
	return bases, ns
}

func (l *lost) drop(n int) {
	l.bases, l.ns, l.until = l.bases[n:], l.ns[n:], l.until[n:]
}

// maxExpiry is how long it may take to notice that leases of other nodes have expired.
const maxExpiry = time.Second

// expiry is when to look for expired leases next.
type expiry struct {
	mu    sync.Mutex
	at    time.Time // then
	known time.Time // when the next known lease expires; zero: none is known
}

// begins reports whether it is time to look for expired leases.
func (e *expiry) begins() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !time.Now().Before(e.at)
}

// ended records whether leases have expired, and the seconds until the next does.
func (e *expiry) ended(some bool, next *float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.at, e.known = now.Add(maxExpiry), time.Time{}
	if next != nil {
		e.leased(now.Add(time.Duration(*next * float64(time.Second))))
	}
	if some {
		e.at = now
	}
}

// within records the leases that a claim has just made, and bounds its wait by the expiry
// of the next lease.
func (e *expiry) within(wait time.Duration, some bool, lease time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if some {
		e.leased(time.Now().Add(lease))
	}
	if e.known.IsZero() {
		return wait
	}
	return min(wait, max(time.Until(e.known), time.Millisecond))
}

func (e *expiry) leased(until time.Time) {
	if e.known.IsZero() || until.Before(e.known) {
		e.known = until
	}
	if until.Before(e.at) {
		e.at = until
	}
}
