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
	maxTogether      = 256     // events in a batch
	maxBytesTogether = 1 << 20 // of their bodies, but for the last
)

// together is for what has one of the senders' slots: a transaction of the host's may have
// published one of the events, and others do not wait for that.
const together = plain + `, set_config('lock_timeout', '100ms', true)`

// hurried is for one event, and waits for a transaction of the host's no longer than
// together does.
func hurried(conn *pgxpool.Conn) querier {
	return told{conn, `select set_config('lock_timeout', '100ms', true), ` + indexOnly}
}

// A publication is an event that is published with others.
type publication struct {
	*webhooks.EncodedEvent
	batch *publicationBatch

	// What came of it, once done is closed.
	deliveries int
	alone      bool // it is to be stored alone after all
	err        error
	done       chan struct{}
}

// A publicationBatch is events that are stored together.
type publicationBatch struct {
	events  []*publication
	present atomic.Int32 // of those who wait for an answer
	ctx     context.Context
	cancel  context.CancelFunc
}

// leave is for who waits no longer: when nobody does, the batch is given up.
func (b *publicationBatch) leave() {
	if b.present.Add(-1) == 0 {
		b.cancel()
	}
}

// store stores the events: in one order, so that batches do not lock each other out,
// and of those of one account and id the first. What is known already is left over.
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
	batch.Queue(together)
	batch.Queue(s.sql(enqueueMany), eventColumns(distinct)...).Query(func(rows pgx.Rows) error {
		var place, deliveries int
		_, err := pgx.ForEachRow(rows, []any{&place, &deliveries}, func() error {
			distinct[place].deliveries, distinct[place].alone = deliveries, false
			return nil
		})
		return err
	})
	err := conn.SendBatch(b.ctx, batch).Close()
	if err != nil { // also after what it had answered
		for _, event := range distinct {
			event.alone = true
		}
	}
	return err
}

func order(x, y *publication) int {
	return cmp.Or(cmp.Compare(x.Account, y.Account), cmp.Compare(x.ID, y.ID))
}

// eventColumns are events by column.
func eventColumns(events []*publication) []any {
	n := len(events)
	accounts, ids, types, times := make([]string, n), make([]string, n), make([]string, n), make([]time.Time, n)
	bodies, shards := make([][]byte, n), make([]int16, n)
	for i, e := range events {
		accounts[i], ids[i], types[i], times[i] = e.Account, e.ID, string(e.Type), utc(e.Timestamp)
		bodies[i], shards[i] = storedBody(e.EncodedEvent), shardOf(e.Account)
	}
	return []any{accounts, ids, types, times, bodies, shards}
}

// tell gives those who wait the answer.
func (b *publicationBatch) tell(err error) {
	b.cancel()
	for _, event := range b.events {
		event.err = err
		close(event.done)
	}
}
