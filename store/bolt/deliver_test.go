package bolt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/storetest"
)

// recorded runs Deliver with a Recorder until the test ends.
func recorded(t *testing.T, s *engine) *storetest.Recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, returned := new(storetest.Recorder), make(chan error, 1)
	go func() { returned <- s.Deliver(ctx, r) }()
	t.Cleanup(func() {
		cancel()
		if err := <-returned; !errors.Is(err, context.Canceled) {
			t.Errorf("Deliver = %v, want %v", err, context.Canceled)
		}
	})
	return r
}

// awaitReports waits until the Recorder has n reports of the method, and returns them.
func awaitReports(t *testing.T, r *storetest.Recorder, method string, n int) (list []storetest.Report) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := r.Wait(ctx, func(reports []storetest.Report) bool {
		list = nil
		for _, report := range reports {
			if report.Method == method {
				list = append(list, report)
			}
		}
		return len(list) >= n
	})
	if err != nil {
		t.Fatalf("%d reports of %s, want %d; reports: %v", len(list), method, n, r.Reports())
	}
	return list
}

// The test damages the rows of deliveries that wait for a retry. Deliver must still report
// deliveries without attempts, and newly published deliveries.
func TestDeliver_DamagedPage_ReportsTroubleAndNewDeliveries(t *testing.T) {
	const events, retried = 300, 250
	path := filepath.Join(t.TempDir(), "storage.db")
	s := mustOpen(t, path)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	publishMany(t, s, events)
	retrySome(t, s, "wh1", retried)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damagePage(t, path, schema.Pending)
	s = mustOpen(t, path)
	t.Cleanup(func() { _ = s.Close() })
	r := recorded(t, s)
	if err := awaitReports(t, r, "Trouble", 1)[0].Err; err == nil {
		t.Error("Trouble(nil), want an error")
	}
	awaitReports(t, r, "Add", events-retried)
	if _, err := s.Enqueue(t.Context(), testEvent(events, 10)); err != nil {
		t.Fatal(err)
	}
	awaitReports(t, r, "Add", events-retried+1)
}

// Deliver reports each delivery exactly once, even if events are published while it reads the pages
// of both buckets.
func TestDeliver_PublishingDuringPages_ReportsEachOnce(t *testing.T) {
	const before, retried, meanwhile = 6000, 4500, 500
	s := openTemp(t)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	publishMany(t, s, before)
	var results []driver.AttemptResult
	if err := s.eachPending(t.Context(), s.feed.Unreported(), func(_ time.Time, d driver.PendingDelivery) {
		if len(results) < retried {
			results = append(results, driver.AttemptResult{
				DeliveryRef: driver.DeliveryRef{WebhookID: d.Webhook.ID, Number: d.Number},
				Effect:      driver.Retry, RetryAfter: time.Hour, Attempt: driver.Attempt{Number: 1, Status: 500},
			})
		}
	}); err != nil {
		t.Fatal(err)
	}
	if settled, err := s.Settle(t.Context(), results, nil); len(settled.Stale) > 0 || err != nil {
		t.Fatal(settled, err)
	}
	r := recorded(t, s)
	for i := range meanwhile {
		if _, err := s.Enqueue(t.Context(), testEvent(before+i, 10)); err != nil {
			t.Fatal(err)
		}
	}
	awaitReports(t, r, "Trouble", 1) // Trouble(nil) follows the last page
	attempts := make(map[uint64]int) // number of attempts, by delivery
	for _, report := range awaitReports(t, r, "Add", before+meanwhile) {
		attempts[report.Ref.Number] = report.Pending.Attempts
	}
	made := 0
	for _, n := range attempts {
		made += n
	}
	if len(attempts) != before+meanwhile || made != retried {
		t.Errorf("%d deliveries with %d attempts are reported, want %d with %d", len(attempts), made, before+meanwhile, retried)
	}
	if left, err := s.Unreported(t.Context(), ""); left.Pending != 0 || err != nil {
		t.Errorf("Unreported = %d, %v; want 0", left.Pending, err)
	}
	s.feed.End() // from now on, all deliveries count as unreported
	if all, err := s.Unreported(t.Context(), "wh1"); all.Pending != before+meanwhile || err != nil {
		t.Errorf("Unreported = %d, %v; want %d without Deliver", all.Pending, err, before+meanwhile)
	}
}

// A watchedContext closes asked on the first call to Done.
type watchedContext struct {
	context.Context
	asked chan struct{}
	once  sync.Once
}

func (c *watchedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.asked) })
	return c.Context.Done()
}

// Unreported waits for the report of a commit that readers already see. Meanwhile the test ends the
// context of Unreported.
func TestUnreported_ContextEndsBeforeReport_ReturnsItsError(t *testing.T) {
	var disk boltfault.Disk
	s := openTemp(t, disk.Option)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	visible, reported, published := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	report := sync.OnceFunc(func() { close(reported) })
	defer report()
	disk.Around(func(commit func() error) error {
		err := commit()
		close(visible)
		<-reported
		return err
	})
	go func() {
		_, err := s.Enqueue(context.Background(), testEvent(1, 10))
		published <- err
	}()
	<-visible
	ended, cancel := context.WithCancel(t.Context())
	ctx := &watchedContext{Context: ended, asked: make(chan struct{})}
	go func() {
		<-ctx.asked
		cancel()
	}()
	timer := time.AfterFunc(10*time.Second, report) // in case Unreported ignores its context
	defer timer.Stop()
	if backlog, err := s.Unreported(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Unreported = %+v, %v; want %v", backlog, err, context.Canceled)
	}
	report()
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	disk.Around(nil)
	if backlog, err := s.Unreported(t.Context(), ""); backlog.Pending != 1 || err != nil {
		t.Errorf("Unreported after the report = %+v, %v; want 1 pending", backlog, err)
	}
}

// One pass over the pending deliveries removes the rows of all deleted webhooks. A webhook that
// reuses the ID of a deleted webhook must be created only after that pass.
func TestPurge_ManyPending_SweepsOnceForAllDeleted(t *testing.T) {
	const hooks, events = 5, 400
	s := openTemp(t)
	for i := range hooks {
		if err := s.CreateWebhook(t.Context(), testWebhook(1+i), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	publishMany(t, s, events)
	for i := range hooks - 1 {
		if err := s.DeleteWebhook(t.Context(), "acct", fmt.Sprint("wh", 1+i), nil, audit.Entry{}); err != nil {
			t.Fatal(err)
		}
	}
	if rows := pendingRows(t, s); rows != hooks*events {
		t.Fatalf("%d rows, want %d", rows, hooks*events)
	}
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if rows := pendingRows(t, s); rows != events {
		t.Errorf("%d rows once one of them is created again, want %d", rows, events)
	}
	if ids, err := s.deletedWebhooks(t.Context()); len(ids) > 0 || err != nil {
		t.Errorf("%v are listed, %v; want none", ids, err)
	}
}
