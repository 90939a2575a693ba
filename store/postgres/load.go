package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres/internal/shards"
)

var (
	errNoPayload = errors.New("the event's payload was purged")
	errNewer     = fmt.Errorf("event payload not found; the schema is newer than this version of the library: %w", errors.ErrUnsupported)
)

// maxBytes is the maximum total size of the bodies that one call to Load returns; a single larger
// body is allowed.
const maxBytes = 4 << 20

var (
	loadedEvents = query("loaded_events")
	loadedRows   = query("loaded_rows")
)

// Load implements [driver.Deliveries]. The node must still own the shards of the deliveries when it
// reads their rows. If the node's term may be over by then, Load returns all deliveries as Unread.
func (s *Store) Load(ctx context.Context, refs []driver.DeliveryRef) ([]driver.LoadedDelivery, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	s.steps.RUnlock()
	l := loader{Store: s, list: make([]driver.LoadedDelivery, len(refs))}
	node := s.node.Current()
	if node != 0 {
		l.find(refs)
		began := time.Now()
		timed, cancel := s.node.Shortly(ctx, shards.WorkLoad)
		err := l.read(timed)
		cancel()
		s.worked(shards.WorkLoad, began, err)
		if err != nil {
			return nil, failure(ctx, err)
		}
	}
	if node == 0 || s.node.Current() != node { // this process was suspended; other nodes may own the shards
		for i := range l.list {
			l.list[i].State = driver.Unread
		}
		return l.list, nil
	}
	l.setStates()
	l.checkPayloads(ctx)
	return l.list, nil
}

// A loader reads the deliveries whose webhooks are in memory; other webhooks belong to other nodes.
type loader struct {
	*Store
	list   []driver.LoadedDelivery
	rows   []loadRow
	events map[int64]*loadEvent
	found  map[int64]decodedWebhook // webhooks read by this call
	now    time.Time                // by the confirmed clock
}

// A loadRow is the result of loadedRows for one delivery.
type loadRow struct {
	place            int // index in the list
	no               int64
	account          string
	kept             decodedWebhook
	event            int64
	version          uint64 // of the webhook; 0 if it is deleted or its account is being erased
	attempts, before int    // attempts is negative if the delivery is not pending
	due              time.Time
}

// A loadEvent is an event, possibly for several webhooks.
type loadEvent struct {
	driver.EncodedEvent
	hasBody bool // the event has a body, even if it was not read
}

// find looks up the webhooks in memory.
func (l *loader) find(refs []driver.DeliveryRef) {
	o := &l.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	l.rows = make([]loadRow, 0, len(refs))
	for i, ref := range refs {
		if w := o.byID[ref.WebhookID]; w != nil {
			l.rows = append(l.rows, loadRow{place: i, no: w.no, account: w.account, kept: w.kept, event: int64(ref.Number)})
		}
	}
}

func (l *loader) read(ctx context.Context) (err error) {
	if len(l.rows) == 0 {
		return nil
	}
	nos := column(l.rows, func(r loadRow) int64 { return r.no })
	events := column(l.rows, func(r loadRow) int64 { return r.event })
	err = l.Store.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		batch := l.batch(indexed, inOrder)
		// Read the events first: if one is erased before the rows are read, the rows show that its
		// delivery is no longer pending.
		batch.Queue(l.sql(loadedEvents), events, slices.Min(events), slices.Max(events), maxBytes).Query(l.scanEvents)
		batch.Queue(l.sql(loadedRows), nos, events).QueryRow(l.scanRows)
		return conn.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return err
	}
	var changed []int64
	for i := range l.rows {
		r := &l.rows[i]
		if (r.kept.webhook == nil || r.version != r.kept.version) && !slices.Contains(changed, r.no) {
			changed = append(changed, r.no)
		}
	}
	l.found, err = l.learn(ctx, changed)
	return err
}

func (l *loader) scanEvents(rows pgx.Rows) error {
	l.events = make(map[int64]*loadEvent, len(l.rows))
	var no int64
	var event bool
	var e driver.EncodedEvent
	_, err := pgx.ForEachRow(rows, []any{&no, &event, &e.ID, &e.Type, (*instant)(&e.Timestamp), &e.TraceContext, &e.Resource, &e.Body}, func() error {
		known := l.events[no]
		switch {
		case event:
			l.events[no] = &loadEvent{EncodedEvent: e}
		case known != nil:
			known.Body, known.hasBody = e.Body, true
		}
		return nil
	})
	return err
}

func (l *loader) scanRows(row pgx.Row) error {
	var places, attempts, before []int
	var due []time.Time
	var nos []int64
	var versions []uint64
	if err := row.Scan(&places, &attempts, &before, &due, &nos, &versions, &l.now); err != nil {
		return err
	}
	version := make(map[int64]uint64, len(nos))
	for i, no := range nos {
		version[no] = versions[i]
	}
	for i := range l.rows {
		r := &l.rows[i]
		r.version, r.attempts = version[r.no], -1
	}
	for i, place := range places {
		r := &l.rows[place]
		r.attempts, r.before, r.due = attempts[i], before[i], due[i]
	}
	return nil
}

// setStates sets the state and content of each delivery in the list.
func (l *loader) setStates() {
	for i := range l.rows {
		r, event := &l.rows[i], l.events[l.rows[i].event]
		to := &l.list[r.place]
		webhook, isRead := l.found[r.no]
		if !isRead {
			webhook = r.kept
		}
		if event == nil {
			event = &loadEvent{}
		}
		if r.attempts < 0 || r.version == 0 {
			continue // gone
		}
		// A body that exists was not read if the call's other bodies already reach maxBytes.
		if webhook.webhook == nil || webhook.version < r.version || event.hasBody && event.Body == nil {
			to.State = driver.Unread
			continue
		}
		*to = driver.LoadedDelivery{
			State: driver.Ready, Webhook: webhook.webhook, Attempts: r.attempts, Before: r.before,
			Due: l.owned.due(r.due, r.attempts, r.before), Age: max(0, l.now.Sub(publishedAt(r.event))),
		}
		if !webhook.webhook.Claimable() {
			to.State = driver.Passive
			continue
		}
		to.Event, to.Err = event.EncodedEvent, webhook.err
		to.Event.Account = r.account
		if event.Body == nil && to.Err == nil {
			to.Err = errNoPayload
		}
	}
}

// checkPayloads reports missing payloads as errNewer if the schema is newer than this node, since a
// newer schema may store payloads elsewhere.
func (l *loader) checkPayloads(ctx context.Context) {
	lost := func(d driver.LoadedDelivery) bool { return d.Err == errNoPayload }
	if !slices.ContainsFunc(l.list, lost) {
		return
	}
	version, err := only(ctx, l.Store, scan[int], `select max(version) from storageapi.versions`)
	if err == nil && version <= len(l.options.migrations) {
		return
	}
	for i := range l.list {
		if lost(l.list[i]) {
			l.list[i].Err = errNewer
		}
	}
}
