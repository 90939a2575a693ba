package bolt

import (
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A purge does not read recoveries that have not expired. In this test, one of these has an
// unreadable record, which the purge must keep.
func TestPurge_Recoveries_AreRemovedInStepsAndOnlyTheOldAreRead(t *testing.T) {
	const old, limit = 10, 4
	s := openTemp(t)
	now := time.Now()
	create := func(i int, at time.Time) {
		t.Helper()
		w := testWebhook(1 + i)
		if err := s.CreateWebhook(t.Context(), w, driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r := driver.Recovery{ID: "rec_" + w.ID, Account: w.Account, WebhookID: w.ID, States: []driver.DeliveryState{driver.Dead}, CreatedAt: at}
		if err := s.CreateRecovery(t.Context(), r, audit.Entry{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AdvanceRecovery(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	for i := range old {
		create(i, now.Add(-time.Hour))
	}
	create(old, now)
	if err := s.writer.Run(t.Context(), func(b *batch) error { return b.Put(schema.Recoveries, []byte("rec_wh11"), []byte{255}) }); err != nil {
		t.Fatal(err)
	}
	rows := func() (recoveries, times int) {
		if err := s.db.View(func(tx *bbolt.Tx) error {
			recoveries, times = rows.Count(tx.Bucket(schema.Recoveries), nil), rows.Count(tx.Bucket(schema.RecoveryTimes), nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return recoveries, times
	}
	for want := old - limit; ; want = max(0, want-limit) {
		more, err := s.Purge(t.Context(), driver.Purge{Attempts: now.Add(-time.Minute), Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if recoveries, times := rows(); recoveries != want+1 || times != want+1 || more != (want > 0) {
			t.Fatalf("%d recoveries and %d times are left, more: %v; want %d of each, and more: %v", recoveries, times, more, want+1, want > 0)
		}
		if want == 0 {
			break
		}
	}
	if _, err := s.Purge(t.Context(), driver.Purge{Attempts: now.Add(time.Minute), Limit: limit}); err != nil {
		t.Fatal(err)
	}
	if recoveries, times := rows(); recoveries != 0 || times != 0 {
		t.Errorf("%d recoveries and %d times are left once all are past their time, want 0", recoveries, times)
	}
}
