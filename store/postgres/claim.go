package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

var (
	errNoPayload = errors.New("the event's payload was purged")
	errNewer     = fmt.Errorf("the event's payload was not found, and the schema is newer than this version of the library: %w", errors.ErrUnsupported)
)

// maxBytes is how many bytes the bodies of a claim have at most, except that one alone may have
// more.
const maxBytes = 4 << 20

var (
	claimedEvents = query("claimed_events")
	claimedRows   = query("claimed_rows")
)

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
	if claim.LongestRetry > 0 {
		s.owned.longestRetry.Store(int64(claim.LongestRetry))
	}
	if err := s.ownership.join(ctx); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	timed, cancel := s.ownership.shortly(ctx, workLook)
	wait, err = s.lookIfDue(timed)
	cancel()
	if s.ownership.worked(workLook, began, err); err != nil {
		return nil, 0, failure(ctx, err)
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
	began = time.Now()
	timed, cancel = s.ownership.shortly(ctx, workRead)
	err = r.read(timed)
	cancel()
	s.ownership.worked(workRead, began, err)
	err = failure(ctx, err)
	if err != nil || s.ownership.node() != node { // it stood still, and others may own the shards
		for _, c := range claimed {
			s.owned.queue.Release(c.Token)
		}
		return nil, 0, err
	}
	if tasks = r.tasks(); r.again {
		next = 0
	}
	s.checkPayloads(ctx, tasks)
	return tasks, min(wait, next), nil
}

// checkPayloads has tasks without a payload be those of a newer version if the schema is newer than this
// node knows, or cannot be read: payloads may be elsewhere by now.
func (s *Store) checkPayloads(ctx context.Context, tasks []webhooks.Task) {
	lost := func(t webhooks.Task) bool { return t.Err == errNoPayload }
	if !slices.ContainsFunc(tasks, lost) {
		return
	}
	version, err := only(ctx, s, scanInt, `select max(version) from storageapi.versions`)
	if err == nil && version <= len(s.options.migrations) {
		return
	}
	for i := range tasks {
		if lost(tasks[i]) {
			tasks[i].Err = errNewer
		}
	}
}

// A claimReader reads what was claimed from memory.
type claimReader struct {
	*Store
	claimed []queue.Claimed
	places  []ownedWebhook // of each claimed, as it was
	rows    []claimedRow   // of each claimed
	events  map[int64]*claimedEvent
	found   map[int64]decodedWebhook // that were read
	again   bool                     // something was claimed that another claim may get
}

// A claimedRow is what claimedRows tells of a delivery.
type claimedRow struct {
	version  uint64 // of its webhook; 0: it is deleted, or its account being erased
	attempts int    // below 0: it is not pending
	due      time.Time
}

// A claimedEvent is an event that was claimed, maybe for several webhooks.
type claimedEvent struct {
	webhooks.EncodedEvent
	payload bool // it has a body, which need not have been read
}

func (r *claimReader) read(ctx context.Context) (err error) {
	nos, events := r.columns()
	if len(nos) == 0 {
		return nil
	}
	err = r.Store.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		batch := &pgx.Batch{}
		batch.Queue(inOrder)
		// The events come first: what is erased between the statements is not pending then.
		batch.Queue(r.sql(claimedEvents), events, slices.Min(events), slices.Max(events), maxBytes).Query(r.scanEvents)
		batch.Queue(r.sql(claimedRows), nos, events).QueryRow(func(row pgx.Row) error { return r.scanRows(row, nos) })
		return conn.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return err
	}
	var changed []int64
	for i := range r.rows {
		row, w := &r.rows[i], &r.places[i]
		if (w.kept.webhook == nil || row.version != w.kept.version) && !slices.Contains(changed, w.no) {
			changed = append(changed, w.no)
		}
	}
	r.found, err = r.learn(ctx, changed)
	return err
}

func (r *claimReader) scanEvents(rows pgx.Rows) error {
	r.events = make(map[int64]*claimedEvent, len(r.claimed))
	var no int64
	var event bool
	var e claimedEvent
	_, err := pgx.ForEachRow(rows, []any{&no, &event, &e.ID, &e.Type, (*instant)(&e.Timestamp), &e.TraceContext, &e.Body}, func() error {
		known := r.events[no]
		switch {
		case event:
			r.events[no] = &claimedEvent{EncodedEvent: e.EncodedEvent}
		case known != nil:
			known.Body, known.payload = e.Body, true
		}
		return nil
	})
	return err
}

func (r *claimReader) scanRows(row pgx.Row, nos []int64) error {
	var places, attempts []int
	var due []time.Time
	var there []int64
	var versions []uint64
	if err := row.Scan(&places, &attempts, nil, &due, &there, &versions, nil); err != nil {
		return err
	}
	version := make(map[int64]uint64, len(there))
	for i, no := range there {
		version[no] = versions[i]
	}
	r.rows = make([]claimedRow, len(nos))
	for i, no := range nos {
		r.rows[i] = claimedRow{version: version[no], attempts: -1}
	}
	for i, place := range places {
		r.rows[place].attempts, r.rows[place].due = attempts[i], due[i]
	}
	return nil
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
		row, c, w := &r.rows[i], &r.claimed[i], &r.places[i]
		event := r.events[int64(c.Seq)]
		if event == nil {
			event = &claimedEvent{}
		}
		now, read := r.found[w.no]
		if !read {
			now = w.kept
		}
		switch {
		case row.attempts < 0, row.version == 0:
			r.owned.endLease(deliveryPair{w.no, int64(c.Seq)}, func() { q.Done(c.Token) })
		case row.attempts >= c.Attempt:
			q.Retry(c.Token, r.owned.due(row.due, row.attempts, c.Before), row.attempts, false)
		case event.payload && event.Body == nil: // other bodies are enough for a claim
			q.Release(c.Token)
		case now.webhook == nil, now.version < row.version, now.err == nil && !now.webhook.Claimable():
			q.Release(c.Token) // it was paused just now
		default:
			task := webhooks.Task{
				Webhook: now.webhook, Event: event.EncodedEvent, Attempt: c.Attempt, Before: c.Before, Token: c.Token, Probe: c.Probe, Err: now.err,
			}
			task.Event.Account = w.account
			if event.Body == nil && task.Err == nil {
				task.Err = errNoPayload
			}
			tasks = append(tasks, task)
			continue
		}
		if c.Probe {
			q.ProbeAgain(c.Webhook)
		}
	}
	r.again = len(tasks) < len(r.rows)
	return tasks
}
