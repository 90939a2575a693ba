package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// A press is a store whose two connections are in use until release is called. So published events
// wait, and all but the first share a batch afterwards.
type press struct {
	*postgres.Store
	t       *testing.T
	release func()
	sent    *publications

	group   sync.WaitGroup
	mu      sync.Mutex
	results []string
}

// publications counts the statements that publish or find events.
type publications struct{ atomic.Int64 }

func (p *publications) count(sql string) {
	if strings.Contains(sql, "event_ids") {
		p.Add(1)
	}
}

func (p *publications) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	p.count(data.SQL)
	return ctx
}
func (p *publications) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (p *publications) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (p *publications) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	p.count(data.SQL)
}
func (p *publications) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func newPress(t *testing.T, option postgres.Option) *press {
	t.Helper()
	config := pool(t).Config()
	sent := new(publications)
	config.MaxConns, config.ConnConfig.Tracer = 2, sent
	only, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(only.Close)
	s, err := postgres.New(t.Context(), only, option)
	if err != nil {
		t.Fatal(err)
	}
	held := only.AcquireAllIdle(t.Context())
	for len(held) < 2 {
		conn, err := only.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	p := &press{Store: s, t: t, sent: sent}
	sent.Store(0)
	p.release = func() {
		for _, conn := range held {
			conn.Release()
		}
	}
	p.publish(t.Context(), "first")
	p.until(1, 0)
	return p
}

// publish publishes events in the background, and records the results.
func (p *press) publish(ctx context.Context, ids ...string) {
	for _, id := range ids {
		p.group.Go(func() {
			n, err := p.Enqueue(ctx, driver.EncodedEvent{ID: id, Account: "acct", Type: alerts.TypeBalanceLow, Body: []byte(id)})
			result := fmt.Sprint(id, ": ", n)
			switch {
			case errors.Is(err, context.Canceled):
				result = id + ": canceled"
			case err != nil:
				result = id + ": error"
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.results = append(p.results, result)
		})
	}
}

// until waits for the given numbers of running senders and waiting events.
func (p *press) until(senders, waiting int) {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s, w := p.Publishing()
		if s == senders && w == waiting {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%d senders and %d waiting, want %d and %d", s, w, senders, waiting)
		}
	}
}

// want waits for the results, and closes the store.
func (p *press) want(want ...string) {
	p.t.Helper()
	p.group.Wait()
	slices.Sort(p.results)
	if !slices.Equal(p.results, want) {
		p.t.Errorf("results are %q, want %q", p.results, want)
	}
	if err := p.Close(); err != nil {
		p.t.Error(err)
	}
}

func TestPublish_Concurrent_SharesTransactions(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	for _, id := range []string{"a", "b"} {
		if err := s.CreateWebhook(t.Context(), newWebhook("acct", id), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// batches counts the transactions in which the events were stored.
	batches := func(ids ...string) (n int) {
		if err := pool(t).QueryRow(t.Context(), `select count(distinct xmin::text) from `+quoted(name)+`.event_log where id = any($1)`, ids).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	t.Run("in one transaction", func(t *testing.T) {
		p := newPress(t, option)
		p.publish(t.Context(), "1", "2", "3", "4")
		p.until(2, 4)
		p.release()
		p.want("1: 2", "2: 2", "3: 2", "4: 2", "first: 2")
		if n := batches("1", "2", "3", "4"); n != 1 {
			t.Errorf("they were stored in %d transactions, want 1", n)
		}
	})

	t.Run("of one id", func(t *testing.T) {
		p := newPress(t, option)
		p.publish(t.Context(), "5", "5", "1", "5", "6")
		p.until(2, 5)
		if err := s.CreateWebhook(t.Context(), newWebhook("acct", "late"), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p.release()
		p.want("1: 2", "5: 3", "5: 3", "5: 3", "6: 3", "first: 2")
	})

	t.Run("one that cannot be stored", func(t *testing.T) {
		p := newPress(t, option)
		p.publish(t.Context(), "7", "\x00", "8")
		p.until(2, 3)
		p.release()
		p.want("\x00: error", "7: 3", "8: 3", "first: 2")
	})

	t.Run("one of many that cannot be stored", func(t *testing.T) {
		p := newPress(t, option)
		ids, want := []string{"\x00"}, []string{"\x00: error"}
		for i := range 39 {
			ids = append(ids, fmt.Sprintf("m%02d", i))
			want = append(want, ids[i+1]+": 3")
		}
		p.publish(t.Context(), ids...)
		p.until(2, 40)
		p.release()
		p.want(slices.Insert(want, 1, "first: 2")...)
		if n := batches(ids[1:]...); n != 17 { // two small batches, and 15 events that shared a batch with the refused one
			t.Errorf("39 events were stored in %d transactions, want 17", n)
		}
	})

	t.Run("many that are known", func(t *testing.T) {
		p := newPress(t, option)
		var ids, want []string
		for i := range 20 {
			ids = append(ids, fmt.Sprintf("m%02d", i))
			want = append(want, ids[i]+": 3")
		}
		p.publish(t.Context(), append(ids, "new")...)
		p.until(2, 21)
		p.release()
		p.want(slices.Concat([]string{"first: 2"}, want, []string{"new: 3"})...)
		if n := p.sent.Load(); n != 4 { // two for the known first event, the batch, and the lookup of known events
			t.Errorf("%d statements were sent, want 4", n)
		}
	})

	t.Run("one whose caller gave up", func(t *testing.T) {
		p := newPress(t, option)
		ctx, cancel := context.WithCancel(t.Context())
		p.publish(t.Context(), "9", "10")
		p.publish(ctx, "given up")
		p.until(2, 3)
		cancel()
		p.until(2, 2)
		p.release()
		p.want("10: 3", "9: 3", "first: 2", "given up: canceled")
		if _, err := s.EventDeliveries(t.Context(), "acct", "given up"); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("EventDeliveries of the withdrawn event = %v, want ErrNotFound", err)
		}
	})

	t.Run("one that an open transaction of the host published", func(t *testing.T) {
		p := newPress(t, option)
		err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
			if _, err := s.EnqueueTx(t.Context(), tx, driver.EncodedEvent{ID: "held", Account: "acct", Type: alerts.TypeBalanceLow}); err != nil {
				return err
			}
			p.publish(t.Context(), "11", "12", "held")
			p.until(2, 3)
			p.release()
			for end := time.Now().Add(20 * time.Second); batches("11", "12") == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					return errors.New("the others wait, too")
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p.want("11: 3", "12: 3", "first: 2", "held: 3")
	})
}

// A context that ends while its batch is being stored does not affect the batch.
func TestPublish_ContextEndsDuringBatch_BatchIsStored(t *testing.T) {
	name, option := migratedSchema(t)
	p := newPress(t, option)
	ctx, cancel := context.WithCancel(t.Context())
	p.publish(t.Context(), "1", "2")
	p.publish(ctx, "given up")
	p.until(2, 3)
	err := pgx.BeginFunc(t.Context(), pool(t), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `lock table `+quoted(name)+`.attempt_log in access exclusive mode`); err != nil {
			return err
		}
		p.release()
		p.until(2, 0)
		cancel()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p.group.Wait()
	for _, result := range p.results {
		id, came, _ := strings.Cut(result, ": ")
		_, err := p.EventDeliveries(t.Context(), "acct", id)
		if stored := err == nil; stored != (came == "0") {
			t.Errorf("%s came of %s, and stored = %v", came, id, stored)
		}
		if id != "given up" && came != "0" {
			t.Errorf("%s came of %s, want 0", came, id)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
