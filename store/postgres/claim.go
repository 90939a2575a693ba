package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

var errNoPayload = errors.New("the event's payload was purged")

// maxBytes is how many bytes the bodies of a claim have at most, except that one alone may have
// more.
const maxBytes = 4 << 20

var claimedRows = query("claimed_rows")

// ClaimDeliveries implements [webhooks.Store].
//
// It claims from memory what is pending in the shards that this node owns. It reads the claimed
// deliveries' rows, so that it never returns one that was settled, deleted or erased, or whose
// webhook was deleted, turned off or put on hold, on any node, before the call. The first call
// makes this node one that owns shards.
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, 0, err
	}
	s.steps.RUnlock()
	if err := s.checkClock(ctx); err != nil { // before joining: a node that may not claim leaves its shards
		return nil, 0, err
	}
	if err := s.ownership.join(ctx); err != nil {
		return nil, 0, err
	}
	if wait, err = s.lookIfDue(ctx); err != nil {
		return nil, 0, err
	}
	node := s.ownership.node()
	if node == 0 {
		return nil, wait, nil
	}
	claimed, next := s.owned.queue.Claim(time.Now(), claim)
	if len(claimed) == 0 {
		return nil, min(wait, next), nil
	}
	r := claimReader{Store: s, claimed: claimed}
	err = r.read(ctx)
	if err != nil || s.ownership.node() != node { // it stood still, and others may own the shards
		for _, c := range claimed {
			s.owned.queue.Release(c.Token)
		}
		return nil, 0, err
	}
	if tasks = r.tasks(); r.again {
		next = 0
	}
	return tasks, min(wait, next), nil
}

// A claimReader reads what was claimed from memory.
type claimReader struct {
	*Store
	claimed []queue.Claimed
	places  []ownedWebhook // of each claimed, as it was
	rows    []claimedRow
	found   map[int64]decodedWebhook // that were read
	again   bool                     // something was claimed that another claim may get
}

// A claimedRow is a row of claimedRows.
type claimedRow struct {
	place                int
	version              *int64 // of its webhook; nil: it is deleted, or its account being erased
	attempts             *int   // nil: it is not pending
	due                  *time.Time
	id, eventType, trace *string
	at                   *time.Time
	body                 []byte
	payload              bool
}

func (r *claimReader) read(ctx context.Context) (err error) {
	nos, events := r.columns()
	if r.rows, err = collect(ctx, r.Store, scanClaimed, claimedRows, nos, events, maxBytes); err != nil {
		return err
	}
	var changed []int64
	for i := range r.rows {
		row, w := &r.rows[i], &r.places[r.rows[i].place]
		if (row.version == nil || w.kept.webhook == nil || *row.version != w.kept.version) && !slices.Contains(changed, w.no) {
			changed = append(changed, w.no)
		}
	}
	r.found, err = r.learn(ctx, changed)
	return err
}

func scanClaimed(row pgx.Row) (c claimedRow, err error) {
	err = row.Scan(&c.place, &c.version, &c.attempts, &c.due, &c.id, &c.eventType, &c.at, &c.trace, &c.body, &c.payload)
	return c, err
}

// columns returns the webhooks and the events of what was claimed, but for what is gone.
func (r *claimReader) columns() (nos, events []int64) {
	o := &r.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := r.claimed[:0]
	for _, c := range r.claimed {
		w := o.byID[c.Webhook]
		if w == nil { // its shard was left just now
			o.queue.Release(c.Token)
			continue
		}
		kept = append(kept, c)
		r.places = append(r.places, *w)
		nos, events = append(nos, w.no), append(events, int64(c.Seq))
	}
	r.claimed = kept
	return nos, events
}

// tasks returns the tasks of what is still pending as it was claimed. What is gone it drops, and
// what differs waits again, as it is.
func (r *claimReader) tasks() []webhooks.Task {
	q := &r.owned.queue
	tasks := make([]webhooks.Task, 0, len(r.rows))
	for i := range r.rows {
		row, c, w := &r.rows[i], &r.claimed[r.rows[i].place], &r.places[r.rows[i].place]
		now, read := r.found[w.no]
		if !read {
			now = w.kept
		}
		switch {
		case row.attempts == nil, row.version == nil:
			r.owned.endLease(deliveryPair{w.no, int64(c.Seq)}, func() { q.Done(c.Token) })
		case *row.attempts >= c.Attempt:
			q.Retry(c.Token, r.owned.clock.here(*row.due), *row.attempts)
		case row.payload && row.body == nil: // the bodies before are enough for a claim
			q.Release(c.Token)
		case now.webhook == nil, now.version < *row.version, now.err == nil && !now.webhook.Claimable():
			q.Release(c.Token) // it was paused just now
		default:
			tasks = append(tasks, r.task(row, c, w.account, now))
		}
	}
	r.again = len(tasks) < len(r.rows)
	return tasks
}

func (r *claimReader) task(row *claimedRow, c *queue.Claimed, account string, of decodedWebhook) webhooks.Task {
	task := webhooks.Task{Webhook: of.webhook, Attempt: c.Attempt, Before: c.Before, Token: c.Token, Probe: c.Probe, Err: of.err}
	if row.id != nil {
		task.Event = webhooks.EncodedEvent{ID: *row.id, Account: account, Type: webhooks.EventType(*row.eventType), Timestamp: utc(*row.at), Body: row.body}
		if row.trace != nil {
			task.Event.TraceContext = *row.trace
		}
	}
	if row.body == nil && task.Err == nil {
		task.Err = errNoPayload
	}
	return task
}
