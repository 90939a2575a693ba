package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

const (
	maxBatch      = 256     // events in a batch
	maxBatchBytes = 1 << 20 // of their bodies, without the last one
)

// hurried returns the connection for an event that is published alone.
func hurried(conn *pgxpool.Conn) querier {
	return told{conn, lookUpSoon}
}

// A publication is an event that is published in a batch.
type publication struct {
	*webhooks.EncodedEvent
	batch *publicationBatch

	// The result, once done is closed.
	deliveries int
	alone      bool // it must be stored alone after all
	err        error
	done       chan struct{}
}

// A publicationBatch is a group commit of events.
type publicationBatch struct {
	events  []*publication
	present atomic.Int32 // callers that wait for the result
	ctx     context.Context
	cancel  context.CancelFunc
}

// abandon is called by a caller that no longer waits: without callers the batch is cancelled.
func (b *publicationBatch) abandon() {
	if b.present.Add(-1) == 0 {
		b.cancel()
	}
}

// store stores the events, in a fixed order so that batches do not deadlock, and only the
// first of those with the same account and id. Known events remain to be stored alone.
func (b *publicationBatch) store(s *Store, conn *pgxpool.Conn) error {
	if len(b.events) == 1 {
		event := b.events[0]
		event.deliveries, _, event.err = s.enqueue(b.ctx, hurried(conn), event.EncodedEvent, "")
		event.alone = event.err != nil
		return event.err
	}
	slices.SortStableFunc(b.events, order)
	distinct := slices.CompactFunc(slices.Clone(b.events), func(x, y *publication) bool { return order(x, y) == 0 })
	for _, event := range b.events {
		event.alone = true
	}
	batch := &pgx.Batch{}
	batch.Queue(inBatch)
	batch.Queue(s.sql(enqueueMany), eventColumns(distinct)...).Query(func(rows pgx.Rows) error {
		var place, deliveries int
		_, err := pgx.ForEachRow(rows, []any{&place, &deliveries}, func() error {
			distinct[place].deliveries, distinct[place].alone = deliveries, false
			return nil
		})
		return err
	})
	err := conn.SendBatch(b.ctx, batch).Close()
	if err != nil { // also after rows were returned
		for _, event := range distinct {
			event.alone = true
		}
	}
	return err
}

func order(x, y *publication) int {
	return cmp.Or(cmp.Compare(x.Account, y.Account), cmp.Compare(x.ID, y.ID))
}

// eventColumns are the parameters of enqueueMany.
func eventColumns(events []*publication) []any {
	n := len(events)
	accounts, ids, types, traces, times := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]time.Time, n)
	bodies, shards := make([][]byte, n), make([]int16, n)
	for i, e := range events {
		accounts[i], ids[i], types[i], times[i] = e.Account, e.ID, string(e.Type), utc(e.Timestamp)
		bodies[i], shards[i], traces[i] = storedBody(e.EncodedEvent), shardOf(e.Account), e.TraceContext
	}
	return []any{accounts, ids, types, times, bodies, shards, traces, changeAdded}
}

// tell passes the result to the callers.
func (b *publicationBatch) tell(err error) {
	b.cancel()
	for _, event := range b.events {
		event.err = err
		close(event.done)
	}
}
